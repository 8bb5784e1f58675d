package fs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/objects"
)

const (
	// credSlots is roughly the number of threads whose groups are cached.
	credSlots = 64
	// credsFor is the time they are cached: a walk through a tree needs them for each name.
	// The kernel, which knows the current groups, has checked access before.
	credsFor = time.Second
)

// creds supplies the callers of requests to other nodes, with the supplementary groups, which
// the kernel does not send.
type creds struct {
	guests *guests

	mu sync.Mutex
	// slots are indexed by thread. A thread replaces another one's entry in its slot.
	// +checklocks:mu
	slots [credSlots]credSlot
}

type credSlot struct {
	fuse.Caller
	groups []uint32
	at     time.Time
}

// of returns the caller of a request with its groups.
func (c *creds) of(who *fuse.Caller) objects.Caller {
	caller, now := c.guests.callerOf(who), time.Now()
	if caller.Groups != nil {
		return caller
	}
	groups, ok := c.known(who, now)
	if ok {
		caller.Groups = groups
		return caller
	}
	caller = caller.WithGroups()
	c.note(who, caller.Groups, now)
	return caller
}

func (c *creds) known(who *fuse.Caller, now time.Time) (groups []uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := &c.slots[who.Pid%credSlots]
	return slot.groups, slot.Caller == *who && now.Sub(slot.at) < credsFor
}

func (c *creds) note(who *fuse.Caller, groups []uint32, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots[who.Pid%credSlots] = credSlot{Caller: *who, groups: groups, at: now}
}
