package objects

import (
	"sync"
	"sync/atomic"
)

// Notice is a change that somebody else may have remembered otherwise.
type Notice struct {
	// Ino has other attributes or content; 0 is none.
	Ino Ino
	// Dir has other names; 0 is none.
	Dir Ino
}

// notices hands changes to those who remember what the store has said.
type notices struct {
	// count counts the listeners, so that a store to which nobody listens need not
	// ask for the lock.
	count atomic.Int32

	mu sync.RWMutex
	// listeners is replaced, never changed.
	// +checklocks:mu
	listeners []*func(Notice)
}

func (ns *notices) send(n Notice) {
	if ns.count.Load() == 0 {
		return
	}
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	for _, fn := range ns.listeners {
		(*fn)(n)
	}
}

// sendWritten tells of what was written to the records.
func (ns *notices) sendWritten(ino Ino, names bool) {
	if names {
		ns.send(Notice{Dir: ino})
	} else {
		ns.send(Notice{Ino: ino})
	}
}

// changes tells the function of OnChange of changes that no request made.
type changes struct {
	notices   *notices
	notifying sync.RWMutex
	// +checklocks:notifying
	notify func(ino Ino, lost bool)
}

func (ch *changes) tell(ino Ino, lost bool) {
	ch.notices.send(Notice{Ino: ino})
	ch.notifying.RLock()
	defer ch.notifying.RUnlock()
	if ch.notify != nil {
		ch.notify(ino, lost)
	}
}
