package metadata

import (
	"encoding/binary"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// cacheShards is the number of shards, each with its own lock. A power of two.
	cacheShards = 16
	// shardEntries is the number of inodes, and of names, that one shard keeps: 32768 of
	// each in total, about 20 MB when full.
	shardEntries = 2048
)

// cache keeps recently read inodes and names, so that lookups of those in use need no
// transaction. It is bounded and contains only data that is in the KV.
//
// Whatever a transaction has written is dropped from the cache after the commit and before
// the operation returns. A reader adds what it has read only if nothing was dropped from
// the shard since before its snapshot, so an old value can't come back. An inode that a
// transaction creates is added before the commit, and dropped again if the commit fails.
// The two reads of a lookup are not one snapshot: it may find the current state of an inode
// by a name that has just been removed, as if the name had been looked up earlier.
type cache struct {
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu sync.Mutex
	// drops counts the dropped entries. +checklocks:mu
	drops uint64
	// +checklocks:mu
	inodes *simplelru.LRU[Ino, Inode]
	// +checklocks:mu
	names *simplelru.LRU[nameKey, cachedName]
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

func newCache() (*cache, error) {
	c := &cache{}
	for i := range c.shards {
		sh := &c.shards[i]
		var err error
		if sh.inodes, err = simplelru.NewLRU[Ino, Inode](shardEntries, nil); err != nil {
			return nil, err
		}
		if sh.names, err = simplelru.NewLRU[nameKey, cachedName](shardEntries, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *cache) ofInode(ino Ino) *cacheShard { return &c.shards[uint64(ino)%cacheShards] }

func (c *cache) ofName(k nameKey) *cacheShard {
	return &c.shards[(uint64(k.parent)+uint64(k.cookie)>>slotBits)%cacheShards]
}

// inode returns a cached inode, or the drop count that put needs to add it.
func (c *cache) inode(ino Ino) (in Inode, ok bool, drops uint64) {
	sh := c.ofInode(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	in, ok = sh.inodes.Get(ino)
	return in, ok, sh.drops
}

func (c *cache) putInode(in Inode, drops uint64) {
	sh := c.ofInode(in.Ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.drops == drops {
		sh.inodes.Add(in.Ino, in)
	}
}

// putFresh adds an inode whose number is not visible to others yet. It is added before the
// commit: an operation that finds its name after the commit may change the inode at once,
// and then drops this entry.
func (c *cache) putFresh(in Inode) {
	sh := c.ofInode(in.Ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.inodes.Add(in.Ino, in)
}

func (c *cache) name(k nameKey, name string) (ino Ino, ok bool, drops uint64) {
	sh := c.ofName(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n, ok := sh.names.Get(k)
	return n.ino, ok && n.name == name, sh.drops
}

func (c *cache) putName(k nameKey, n cachedName, drops uint64) {
	sh := c.ofName(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.drops == drops {
		sh.names.Add(k, n)
	}
}

// drop removes the entry for a key of the KV.
func (c *cache) drop(key []byte) {
	switch {
	case len(key) == inoKeyLen && key[0] == kindInode:
		ino := Ino(binary.BigEndian.Uint64(key[1:]))
		sh := c.ofInode(ino)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.drops++
		sh.inodes.Remove(ino)
	case len(key) == inoKeyLen+8 && key[0] == kindDirent:
		k := nameKey{Ino(binary.BigEndian.Uint64(key[1:])), Cookie(binary.BigEndian.Uint64(key[9:]))}
		sh := c.ofName(k)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.drops++
		sh.names.Remove(k)
	}
}
