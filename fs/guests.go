package fs

import (
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/objects"
)

// guestBit distinguishes the number of a guest, in the place of a process ID in a request, from
// a process ID, of which the kernel has at most 1<<22. The number is none of /proc, so a request
// of a guest that is cancelled ends at once (untilKilled).
const guestBit = 1 << 31

// guests are the users of Files: no kernel sends their requests, so the process and the groups
// of each are known from the start. The zero value has none.
type guests struct {
	// seen is set once there has been a guest: from then on names and attributes change without
	// the kernel's doing.
	seen atomic.Bool
	last atomic.Uint32

	mu sync.RWMutex
	// +checklocks:mu
	known map[uint32]objects.Caller
}

// add returns the number of a new guest.
func (g *guests) add(who objects.Caller) uint32 {
	g.seen.Store(true)
	who = who.WithGroups()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = map[uint32]objects.Caller{}
	}
	// The numbers come again after 2^31 guests; some may still be there.
	id := guestBit | g.last.Add(1)
	for _, used := g.known[id]; used; _, used = g.known[id] {
		id = guestBit | g.last.Add(1)
	}
	g.known[id] = who
	return id
}

func (g *guests) remove(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, id)
}

// isGuest reports whether a request is one of a guest.
func isGuest(c *fuse.Caller) bool { return c.Pid&guestBit != 0 }

// callerOf returns the caller of a request. That of a guest has its groups.
func (g *guests) callerOf(c *fuse.Caller) objects.Caller {
	if !isGuest(c) {
		return objects.Caller{UID: c.Uid, GID: c.Gid, PID: int(c.Pid)}
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if who, ok := g.known[c.Pid]; ok {
		return who
	}
	return objects.Caller{UID: c.Uid, GID: c.Gid}.WithGroups()
}

// unchecked returns the user whose permissions the store has to check itself: root for a request
// of the kernel, which has done that, with rights of a process that it does not tell.
func (g *guests) unchecked(c *fuse.Caller) objects.Caller {
	if !isGuest(c) {
		return objects.Caller{}
	}
	return g.callerOf(c)
}
