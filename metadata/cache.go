package metadata

import (
	"encoding/binary"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// cacheShards spreads the cache over locks. A power of two.
	cacheShards = 16
	// shardEntries is the number of inodes, and as many names, that one shard keeps:
	// 32768 of each in all, some 20 MB when full.
	shardEntries = 2048
)

// cache keeps inodes and names that were read lately, so that looking up what
// is in use costs no transaction. It is bounded and holds nothing that is not
// in the KV.
//
// What a transaction has written leaves the cache after the commit and before
// the operation returns. A reader puts in what it read only if nothing of the
// shard was dropped since before its snapshot, so an old value can't come
// back. What a transaction makes enters before the commit, and leaves again if
// that fails. The two reads of a lookup are not one snapshot: it finds the inode as
// it is now behind a name as it was a moment ago, as if the name had been
// looked up then.
type cache struct {
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu sync.Mutex
	// drops counts what was dropped. +checklocks:mu
	drops uint64
	// +checklocks:mu
	inodes *simplelru.LRU[Ino, Inode]
	// +checklocks:mu
	names *simplelru.LRU[nameKey, cachedName]
}

// nameKey is the place of slot 0 of a name: names in later slots are not
// kept.
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

// inode returns an inode, or what put needs to bring it in.
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

// putFresh brings in an inode whose number nobody else knows yet. It comes in
// before the commit: who finds the name behind that may change the inode at
// once, and then drops what is here.
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

// drop takes out what was under a key of the KV.
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
