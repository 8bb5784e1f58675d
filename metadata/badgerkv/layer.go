package badgerkv

import (
	"bytes"
	"strings"

	"github.com/tidwall/btree"
)

// change is one change of a transaction, and once that is committed, a part of a layer.
type change struct {
	key     []byte
	value   []byte
	deleted bool
	hash    uint64  // of the key
	version uint64  // of the commit
	older   *change // in the same layer, of a key with the same hash
}

// commit is the changes of one transaction, in the order in which it made them.
type commit struct {
	writes []change
	record []byte // what a journal has of it, which the changes are parts of; nil until it is kept
	bytes  int64  // an upper bound for what it adds to a log, admitted by space
	size   int64  // an upper bound for what Badger counts against its limit
}

// number returns the version of a commit that a layer has.
func (c *commit) number() uint64 { return c.writes[0].version }

// layer holds committed changes that Badger does not have yet. New commits go to the active
// layer. To write it, it is frozen and followed by another; a transaction that began with it
// finds all later commits in it and those that follow.
//
// KV.mu guards all fields; those of a frozen layer no longer change, except sorted.
type layer struct {
	// heads has the latest change by the hash of its key.
	heads hashes[*change]
	room  int // for so many it was made
	// sorted has the latest change of each key, in order; nil until a scan needs it.
	sorted  *btree.Map[string, *change]
	commits []commit
	bytes   int64  // of the commits
	last    uint64 // the version of the last commit
	next    *layer // the one that followed it; nil for the active layer
}

// newLayer returns a layer with room for as many changes as the one before it had, which may be
// nil, or almost as many as that had room for: a small layer is often followed by another large one.
func newLayer(before *layer) *layer {
	room := 0
	if before != nil {
		room = max(before.heads.used, before.room/8*7)
	}
	return &layer{heads: newHashes[*change](room), room: room}
}

// add adds a commit. The caller has checked that it has no conflict.
func (l *layer) add(version uint64, c commit) {
	for i := range c.writes {
		w := &c.writes[i]
		head := l.heads.at(w.hash)
		w.version, w.older, *head = version, *head, w
		if l.sorted != nil {
			l.sorted.Set(string(w.key), w)
		}
	}
	l.commits = append(l.commits, c)
	l.bytes += c.bytes
	l.last = version
}

// recorded returns the number of bytes that a journal has of the commits up to a version.
func (l *layer) recorded(version uint64) (n uint64) {
	for i := range l.commits {
		if c := &l.commits[i]; c.number() <= version {
			n += uint64(len(c.record))
		}
	}
	return n
}

// conflicts reports whether one of the keys, given by hash, was changed after a version, in this
// layer or one that follows.
func (l *layer) conflicts(version uint64, keys []uint64) bool {
	for ; l != nil; l = l.next {
		if l.last <= version {
			continue
		}
		for _, key := range keys {
			if c := l.heads.get(key); c != nil && c.version > version {
				return true
			}
		}
	}
	return false
}

// at returns the change of a key, given with its hash, as of a version; nil if there is none in
// the layer.
func (l *layer) at(key []byte, hash, version uint64) *change {
	return l.heads.get(hash).asOf(key, version)
}

// asOf returns the latest change of a key that a version includes, c or an older one; nil if
// there is none.
func (c *change) asOf(key []byte, version uint64) *change {
	for c != nil && (c.version > version || !bytes.Equal(c.key, key)) {
		c = c.older
	}
	return c
}

// replaced reports whether a later change of the layer, of a version up to the given one, makes
// writing a change unnecessary.
func (l *layer) replaced(c *change, version uint64) bool {
	head := l.heads.get(c.hash)
	return head != c && head.version <= version && bytes.Equal(head.key, c.key)
}

// removes reports whether a change is the last one that the layer has by its hash, and removes its key.
func (l *layer) removes(c *change) bool { return c.deleted && l.heads.get(c.hash) == c }

// sort makes a layer ready for under.
func (l *layer) sort() {
	if l.sorted != nil {
		return
	}
	l.sorted = &btree.Map[string, *change]{}
	for _, c := range l.commits {
		for i := range c.writes {
			l.sorted.Set(string(c.writes[i].key), &c.writes[i])
		}
	}
}

// under adds the changes, as of a version, of the keys that begin with prefix and are not below
// from, except those of keys that out has already.
func (l *layer) under(prefix, from string, version uint64, out *btree.Map[string, *change]) {
	l.sorted.Ascend(max(prefix, from), func(key string, c *change) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		if c = c.asOf(c.key, version); c != nil {
			if _, has := out.Get(key); !has {
				out.Set(key, c)
			}
		}
		return true
	})
}
