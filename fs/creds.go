package fs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/owner"
)

const (
	// credSlots is how many threads' groups are remembered, more or less.
	credSlots = 64
	// credsFor is how long: a walk through a tree asks for them with each
	// name. The kernel, which knows the groups of now, has judged before.
	credsFor = time.Second
)

// creds tell other nodes who asks, with the supplementary groups, which the
// kernel does not send.
type creds struct {
	mu sync.Mutex
	// slots are by thread. A thread that finds another's takes it over.
	// +checklocks:mu
	slots [credSlots]credSlot
}

type credSlot struct {
	fuse.Caller
	groups []uint32
	at     time.Time
}

// of is who has sent a request.
func (c *creds) of(who *fuse.Caller) cluster.Cred {
	now := time.Now()
	groups, ok := c.known(who, now)
	if !ok {
		groups = owner.Groups(int(who.Pid), who.Uid)
		c.note(who, groups, now)
	}
	return cluster.Cred{UID: who.Uid, GID: who.Gid, Groups: groups}
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
