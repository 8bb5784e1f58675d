package metadata

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

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
	keys   [cacheShards]cacheShard[string, cachedKey]
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

// cachedKey is the inode that has a key. inode and xattr are the entries of that inode and of one
// of its attributes in this cache, so that one lookup finds all three; nil for none. They are used as
// long as they are current, and found again by their names afterwards.
type cachedKey struct {
	ino   Ino
	inode *kept[Inode]
	xattr *kept[cachedXattr]
	name  string // of the attribute
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
func (c *cache) ofKey(key string) *cacheShard[string, cachedKey] {
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

// known returns the inode that has a key, and the value of one of its attributes, if the cache has
// all of them. The caller must not change the inode.
func (c *cache) known(key, xattr string) (in *Inode, value cachedXattr, ok bool) {
	shard := c.ofKey(key)
	k, ok, _ := shard.get(key)
	if !ok {
		return nil, cachedXattr{}, false
	}
	if k.inode == nil || k.name != xattr || k.inode.gone.Load() || k.xattr.gone.Load() {
		k = cachedKey{ino: k.ino, name: xattr, inode: c.ofInode(k.ino).find(k.ino)}
		k.xattr = c.ofXattr(k.ino).find(xattrName{k.ino, xattr})
		if k.inode == nil || k.xattr == nil {
			return nil, cachedXattr{}, false
		}
		shard.revise(key, k, func(now cachedKey) bool { return now.ino == k.ino })
	}
	// The attributes of an inode that was removed go later.
	if value = k.xattr.value; k.xattr.gone.Load() || k.inode.gone.Load() || k.inode.value.Key != key {
		return nil, cachedXattr{}, false
	}
	return &k.inode.value, value, true
}

// kept is an entry of the cache.
type kept[V any] struct {
	value V
	// gone is set when the entry leaves the cache: the value may be old from then on.
	gone atomic.Bool
}

// cacheShard is a part of the inodes or of the names.
type cacheShard[K comparable, V any] struct {
	mu sync.Mutex
	// drops counts the dropped entries. +checklocks:mu
	drops uint64
	// +checklocks:mu
	entries *simplelru.LRU[K, *kept[V]]
}

func (s *cacheShard[K, V]) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, _ = simplelru.NewLRU(shardEntries, func(_ K, e *kept[V]) { e.gone.Store(true) }) // fails only for a size of 0
}

// setLocked adds an entry, or replaces it.
//
// +checklocks:s.mu
func (s *cacheShard[K, V]) setLocked(k K, v V) {
	if old, ok := s.entries.Peek(k); ok {
		old.gone.Store(true)
	}
	s.entries.Add(k, &kept[V]{value: v})
}

// find returns an entry; nil for none.
func (s *cacheShard[K, V]) find(k K) *kept[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, _ := s.entries.Get(k)
	return e
}

// revise replaces the value of an entry, if it is there and is still the one meant.
func (s *cacheShard[K, V]) revise(k K, v V, meant func(V) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries.Peek(k); ok && meant(e.value) {
		s.setLocked(k, v)
	}
}

// get returns a cached value, or the drop count that put needs to add it.
func (s *cacheShard[K, V]) get(k K) (v V, ok bool, drops uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries.Get(k)
	if ok {
		v = e.value
	}
	return v, ok, s.drops
}

// put adds a value that was read, unless an entry was dropped since drops were counted.
func (s *cacheShard[K, V]) put(k K, v V, drops uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops == drops {
		s.setLocked(k, v)
	}
}

// putFresh adds an inode whose number is not visible to others yet. It is added before the
// commit: an operation that finds its name after the commit may change the inode at once,
// and then drops this entry. It returns the cached value, not to be changed.
func (s *cacheShard[K, V]) putFresh(k K, v *V) *V {
	e := &kept[V]{value: *v}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.Add(k, e)
	return &e.value
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
		s.setLocked(k, v)
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
