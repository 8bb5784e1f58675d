package etcd

import (
	"crypto/rand"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// fenceTTL is the lifetime of a fence that is no longer renewed: longer than a request can
// be in transit.
const fenceTTL = time.Hour

// fence is an entry on whose revision every write of a service is conditional. A failed
// write may still arrive; once the fence has a new revision it can't take effect.
type fence struct {
	key string

	mu sync.Mutex
	// revision is the revision of the entry; 0 while there is no entry.
	// +checklocks:mu
	revision int64
	// doubted is set while a write that depends on revision may still arrive.
	// +checklocks:mu
	doubted bool
	// moving is the running attempt to change the entry's revision; nil if there is none.
	// +checklocks:mu
	moving *move

	// lease binds the entry; 0 before the first attempt and after the lease has ended. Only
	// the running attempt accesses it.
	lease clientv3.LeaseID
}

// move is one attempt; err may be read once done is closed.
type move struct {
	done chan struct{}
	err  error
}

func newFence(prefix string) *fence { return &fence{key: prefix + "fence/" + rand.Text()} }

// current returns the revision on which a write must be conditional.
func (f *fence) current() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// doubt records that a write conditional on a revision may still arrive.
func (f *fence) doubt(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubted = f.doubted || f.revision == revision
}

// changed records that the entry's revision has changed from former to now. Writes that are
// conditional on former can't take effect any more.
func (f *fence) changed(former, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.revision == former && former != now {
		f.revision, f.doubted = now, false
	}
}

// begin returns the running attempt, starting one if there is none. It returns nil if no
// write may still arrive.
func (f *fence) begin(attempt func(*move)) *move {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubted && f.moving == nil {
		f.moving = &move{done: make(chan struct{})}
		go attempt(f.moving)
	}
	return f.moving
}

func (f *fence) end(m *move, err error) {
	f.mu.Lock()
	f.moving = nil
	f.mu.Unlock()
	m.err = err
	close(m.done)
}
