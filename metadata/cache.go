package metadata

import (
	"hash/maphash"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// cacheShards is the number of shards, each with its own lock. A power of two.
	cacheShards = 16
	// shardEntries is the number of inodes, of names, of keys and of attributes that one
	// shard keeps: 32768 of each in total, about 40 MB when full.
	shardEntries = 2048
	// longestCached is the length, in bytes, of the longest attribute that is kept.
	longestCached = 128
)

// cache keeps recently read inodes, names, keys and small attributes, so that lookups of those
// in use need no transaction. It is bounded and contains only data that is in the KV.
//
// Whatever a transaction has written is dropped from the cache after the commit and before
// the operation returns. A reader adds what it has read only if nothing was dropped from
// the shard since before its snapshot, so an old value can't come back. An inode that a
// transaction creates is added before the commit, and dropped again if the commit fails. A
// directory in which a name is made or removed stays, with its new state, unless another
// transaction has written in its shard meanwhile.
// The two reads of a lookup are not one snapshot: it may find the current state of an inode
// by a name that has just been removed, as if the name had been looked up earlier.
type cache struct {
	seed   maphash.Seed
	inodes [cacheShards]cacheShard[Ino, Inode]
	names  [cacheShards]cacheShard[nameKey, cachedName]
	keys   [cacheShards]cacheShard[string, Ino]
	xattrs [cacheShards]cacheShard[xattrName, cachedXattr]
}

// nameKey identifies slot 0 of a name's hash: names in later slots are not cached.
type nameKey struct {
	parent Ino
	cookie Cookie
}

type cachedName struct {
	name string
	ino  Ino
}

// xattrName identifies an extended attribute.
type xattrName struct {
	ino  Ino
	name string
}

// cachedXattr is the value of an attribute, or the fact that there is none.
type cachedXattr struct {
	value  string
	absent bool
}

func newCache() *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range cacheShards {
		c.inodes[i].start()
		c.names[i].start()
		c.keys[i].start()
		c.xattrs[i].start()
	}
	return c
}

// ofInode returns the shard of an inode.
func (c *cache) ofInode(ino Ino) *cacheShard[Ino, Inode] { return &c.inodes[uint64(ino)%cacheShards] }

// ofName returns the shard of a name.
func (c *cache) ofName(k nameKey) *cacheShard[nameKey, cachedName] {
	return &c.names[(uint64(k.parent)+uint64(k.cookie)>>slotBits)%cacheShards]
}

// ofKey returns the shard of a key.
func (c *cache) ofKey(key string) *cacheShard[string, Ino] {
	return &c.keys[maphash.String(c.seed, key)%cacheShards]
}

// ofXattr returns the shard of an inode's attributes.
func (c *cache) ofXattr(ino Ino) *cacheShard[xattrName, cachedXattr] {
	return &c.xattrs[uint64(ino)%cacheShards]
}

// keeps reports whether the cache may have an entry for a key of the KV.
func (*cache) keeps(key []byte) bool {
	switch key[0] {
	case kindInode, kindDirent, kindKey, kindXattr:
		return true
	}
	return false
}

// drop removes the entry for a key of the KV.
func (c *cache) drop(key []byte) {
	switch {
	case len(key) == inoKeyLen && key[0] == kindInode:
		c.ofInode(keyIno(key)).drop(keyIno(key))
	case len(key) == inoKeyLen+8 && key[0] == kindDirent:
		k := nameKey{keyIno(key), Cookie(keyNumber(key, 1))}
		c.ofName(k).drop(k)
	case key[0] == kindKey:
		c.ofKey(string(key[1:])).drop(string(key[1:]))
	case len(key) > inoKeyLen && key[0] == kindXattr:
		c.ofXattr(keyIno(key)).drop(xattrName{keyIno(key), string(key[inoKeyLen:])})
	}
}

// cacheShard is a part of the inodes or of the names.
type cacheShard[K comparable, V any] struct {
	mu sync.Mutex
	// drops counts the dropped entries. +checklocks:mu
	drops uint64
	// +checklocks:mu
	entries *simplelru.LRU[K, V]
}

func (s *cacheShard[K, V]) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, _ = simplelru.NewLRU[K, V](shardEntries, nil) // fails only for a size of 0
}

// get returns a cached value, or the drop count that put needs to add it.
func (s *cacheShard[K, V]) get(k K) (v V, ok bool, drops uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok = s.entries.Get(k)
	return v, ok, s.drops
}

// put adds a value that was read, unless an entry was dropped since drops were counted.
func (s *cacheShard[K, V]) put(k K, v V, drops uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops == drops {
		s.entries.Add(k, v)
	}
}

// putFresh adds an inode whose number is not visible to others yet. It is added before the
// commit: an operation that finds its name after the commit may change the inode at once,
// and then drops this entry.
func (s *cacheShard[K, V]) putFresh(k K, v V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.Add(k, v)
}

// dropped returns the drop count that replace needs.
func (s *cacheShard[K, V]) dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drops
}

// replace is drop for a value that a transaction has written, which it adds unless an entry was
// dropped since before the transaction began: another transaction may have written it too.
func (s *cacheShard[K, V]) replace(k K, v V, drops uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops == drops {
		s.entries.Add(k, v)
	} else {
		s.entries.Remove(k)
	}
	s.drops++
}

func (s *cacheShard[K, V]) drop(k K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops++
	s.entries.Remove(k)
}
