package cluster

import (
	"encoding/binary"
	"maps"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects"
)

const (
	// maxCached bounds the attributes, and the names, that are cached for one node.
	maxCached = 1 << 15
	// maxRecent bounds the number of invalidations during a request after which its answer may
	// still be cached, if none of them concerned it.
	maxRecent = 256
)

// cache has the answers of a node that may be reused, per user: another user might have been
// answered differently.
//
// An invalidation can arrive before the answer that it concerns. So a request begins with a
// mark, and its answer is not cached if it was invalidated since.
type cache struct {
	ttl time.Duration

	mu sync.Mutex
	// seq counts the invalidations.
	// +checklocks:mu
	seq uint64
	// recent holds the last invalidations.
	// +checklocks:mu
	recent [maxRecent]topic
	// +checklocks:mu
	attrs map[objects.Ino][]cachedAttr
	// +checklocks:mu
	held int
	// +checklocks:mu
	names map[objects.Ino]map[cachedName]named
	// +checklocks:mu
	named int
}

type cachedAttr struct {
	who   string
	attr  objects.Attr
	until time.Time
	// order is the owner's; see proto.Attr.
	order uint64
}

// weight returns the share of the cache that attributes take, including their texts.
func weight(a *objects.Attr) int {
	return 1 + (len(a.Target)+len(a.Key)+len(a.Path)+len(a.Device))/textWeight
}

// textWeight is the number of bytes of text that weigh as much as all other attributes.
const textWeight = 512

type cachedName struct{ who, name string }

type named struct {
	ino   objects.Ino
	until time.Time
	order uint64
}

// mark records the start of a request.
type mark struct {
	seq uint64
	at  time.Time
	// order is the owner's order of the answer; 0 before it is known. Cached data of a later
	// order is not replaced.
	order uint64
}

func (c *cache) open(ttl time.Duration) {
	c.ttl = ttl
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attrs, c.names = map[objects.Ino][]cachedAttr{}, map[objects.Ino]map[cachedName]named{}
}

// userKey encodes the ids of a caller, by which answers are cached.
func userKey(who objects.Caller) string {
	who = who.WithGroups()
	p := make([]byte, 0, 8+4*len(who.Groups))
	p = binary.LittleEndian.AppendUint32(p, who.UID)
	p = binary.LittleEndian.AppendUint32(p, who.GID)
	for _, g := range who.Groups {
		p = binary.LittleEndian.AppendUint32(p, g)
	}
	return string(p)
}

// begin returns a mark for a request that starts now.
func (c *cache) begin() mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return mark{seq: c.seq, at: time.Now()}
}

// attr returns the cached attributes of an inode.
func (c *cache) attr(who string, ino objects.Ino) (objects.Attr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attrLocked(who, ino, time.Now())
}

// +checklocks:c.mu
func (c *cache) attrLocked(who string, ino objects.Ino, now time.Time) (objects.Attr, bool) {
	for i := range c.attrs[ino] {
		if at := &c.attrs[ino][i]; at.who == who && now.Before(at.until) {
			return at.attr, true
		}
	}
	return objects.Attr{}, false
}

// lookup returns the cached attributes of the inode that a name refers to.
func (c *cache) lookup(who string, dir objects.Ino, name string) (objects.Attr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	at, ok := c.names[dir][cachedName{who, name}]
	if !ok || !now.Before(at.until) {
		return objects.Attr{}, false
	}
	return c.attrLocked(who, at.ino, now)
}

// until returns the expiry of an answer that the owner allows to be kept for keep
// milliseconds.
func (c *cache) until(m mark, keep uint32) time.Time {
	return m.at.Add(min(c.ttl, time.Duration(keep)*time.Millisecond))
}

// putAttr caches attributes.
func (c *cache) putAttr(m mark, who string, a *objects.Attr, keep uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putAttrLocked(m, who, a, keep)
}

// +checklocks:c.mu
func (c *cache) putAttrLocked(m mark, who string, a *objects.Attr, keep uint32) {
	if keep == 0 || c.changed(m, topicOf(a.Ino)) {
		return
	}
	fresh := cachedAttr{who: who, attr: *a, until: c.until(m, keep), order: m.order}
	list := c.attrs[a.Ino]
	for i := range list {
		if list[i].who == who {
			if list[i].order <= m.order {
				c.held += weight(a) - weight(&list[i].attr)
				list[i] = fresh
			}
			return
		}
	}
	c.roomLocked()
	c.attrs[a.Ino] = append(c.attrs[a.Ino], fresh)
	c.held += weight(a)
}

// putName caches a name and the attributes of its inode.
func (c *cache) putName(m mark, who string, dir objects.Ino, name string, a *objects.Attr, keep uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putAttrLocked(m, who, a, keep)
	if keep == 0 || c.changed(m, namesOf(dir)) {
		return
	}
	c.roomLocked()
	list := c.names[dir]
	if list == nil {
		list = map[cachedName]named{}
		c.names[dir] = list
	}
	key := cachedName{who, name}
	was, there := list[key]
	if there && was.order > m.order {
		return
	}
	if !there {
		c.named++
	}
	list[key] = named{ino: a.Ino, until: c.until(m, keep), order: m.order}
}

// roomLocked makes room for another entry: it drops the expired entries, and if that is not
// enough, all of them.
//
// +checklocks:c.mu
func (c *cache) roomLocked() {
	if c.held < maxCached && c.named < maxCached {
		return
	}
	now := time.Now()
	for ino, list := range c.attrs {
		kept := list[:0]
		for i := range list {
			if now.Before(list[i].until) {
				kept = append(kept, list[i])
			} else {
				c.held -= weight(&list[i].attr)
			}
		}
		clear(list[len(kept):])
		if c.attrs[ino] = kept; len(kept) == 0 {
			delete(c.attrs, ino)
		}
	}
	for dir, list := range c.names {
		was := len(list)
		maps.DeleteFunc(list, func(_ cachedName, at named) bool { return !now.Before(at.until) })
		if c.named -= was - len(list); len(list) == 0 {
			delete(c.names, dir)
		}
	}
	if c.held > maxCached/2 || c.named > maxCached/2 {
		c.clearLocked()
	}
}

// +checklocks:c.mu
func (c *cache) clearLocked() {
	clear(c.attrs)
	clear(c.names)
	c.held, c.named = 0, 0
}

// changed reports whether something was, or may have been, invalidated since a mark.
//
// +checklocks:c.mu
func (c *cache) changed(m mark, what topic) bool {
	if c.seq-m.seq > maxRecent {
		return true
	}
	for i := m.seq; i < c.seq; i++ {
		if c.recent[i%maxRecent] == what {
			return true
		}
	}
	return false
}

// overtaken reports whether an inode was, or may have been, invalidated since a mark.
func (c *cache) overtaken(m mark, ino objects.Ino) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed(m, topicOf(ino))
}

// forget drops the entries that an invalidation covers.
func (c *cache) forget(what Invalidation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if what.All {
		c.clearLocked()
		c.seq += maxRecent + 1 // answers of requests in progress are not cached either
		return
	}
	for _, ino := range what.Inos {
		c.noteLocked(topicOf(ino))
		for i := range c.attrs[ino] {
			c.held -= weight(&c.attrs[ino][i].attr)
		}
		delete(c.attrs, ino)
	}
	for _, dir := range what.Dirs {
		c.noteLocked(namesOf(dir))
		c.named -= len(c.names[dir])
		delete(c.names, dir)
	}
}

// +checklocks:c.mu
func (c *cache) noteLocked(what topic) {
	c.recent[c.seq%maxRecent] = what
	c.seq++
}
