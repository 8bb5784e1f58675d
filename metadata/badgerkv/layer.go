package badgerkv

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// write is one change of a transaction.
type write struct {
	key     string
	value   []byte
	deleted bool
}

// commit is the changes of one transaction, in the order in which it made them.
type commit struct {
	writes []write
	bytes  int64 // an upper bound for what it adds to a log, admitted by space
	size   int64 // an upper bound for what Badger counts against its limit
}

// change is a committed write.
type change struct {
	write
	version uint64
	older   *change // of the same key in the same layer
}

// layer holds committed changes that Badger does not have yet. New commits go to the active
// layer. To write it, it is frozen and followed by another; a transaction that began with it
// finds all later commits in it and those that follow.
//
// KV.mu guards all fields.
type layer struct {
	changes btree.Map[string, *change]
	// heads has the version of the latest change of a key, by the key's hash.
	heads   map[uint64]uint64
	commits []commit
	bytes   int64  // of the commits
	last    uint64 // the version of the last commit
	next    *layer // the one that followed it; nil for the active layer
}

func newLayer() *layer { return &layer{heads: map[uint64]uint64{}} }

// add adds a commit. The caller has checked that it has no conflict.
func (l *layer) add(seed maphash.Seed, version uint64, c commit) {
	for _, w := range c.writes {
		older, _ := l.changes.Get(w.key)
		l.changes.Set(w.key, &change{write: w, version: version, older: older})
		l.heads[maphash.String(seed, w.key)] = version
	}
	l.commits = append(l.commits, c)
	l.bytes += c.bytes
	l.last = version
}

// conflicts reports whether one of the keys, given by hash, was changed after a version, in this
// layer or one that follows.
func (l *layer) conflicts(version uint64, keys []uint64) bool {
	for ; l != nil; l = l.next {
		if l.last <= version {
			continue
		}
		if slices.ContainsFunc(keys, func(key uint64) bool { return l.heads[key] > version }) {
			return true
		}
	}
	return false
}

// at returns the change of a key as of a version; nil if there is none in the layer.
func (l *layer) at(key string, version uint64) *change {
	c, _ := l.changes.Get(key)
	return c.asOf(version)
}

// asOf returns the latest of a key's changes that a version includes; nil if there is none.
func (c *change) asOf(version uint64) *change {
	for c != nil && c.version > version {
		c = c.older
	}
	return c
}

// under adds the changes, as of a version, of the keys that begin with prefix and are not below
// from, except those of keys that out has already.
func (l *layer) under(prefix, from string, version uint64, out *btree.Map[string, *write]) {
	l.changes.Ascend(max(prefix, from), func(key string, c *change) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		if c = c.asOf(version); c != nil {
			if _, has := out.Get(key); !has {
				out.Set(key, &c.write)
			}
		}
		return true
	})
}
