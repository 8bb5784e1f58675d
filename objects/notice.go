package objects

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
)

// Notice is a change that may invalidate a cache.
type Notice struct {
	// Ino is the inode whose attributes or content have changed; 0 is none.
	Ino Ino
	// Dir is the directory whose names have changed; 0 is none.
	Dir Ino
}

// notices passes changes to the listeners that cache replies of the store.
type notices struct {
	meta *metadata.Store
	// count is the number of listeners, so that a store without any need not take the lock.
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

// sendWritten reports a change of the records.
func (ns *notices) sendWritten(ino Ino, names bool) {
	if names {
		ns.send(Notice{Dir: ino})
	} else {
		ns.send(Notice{Ino: ino})
	}
}

// changes calls the function of OnChange.
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

// onChange implements Store.OnChange.
func (ch *changes) onChange(fn func(ino Ino, lost bool)) {
	ch.notifying.Lock()
	defer ch.notifying.Unlock()
	ch.notify = fn
}

// onNotice implements Store.OnNotice.
func (ns *notices) onNotice(fn func(Notice)) (cancel func()) {
	mine := &fn
	ns.mu.Lock()
	ns.listeners = append(slices.Clone(ns.listeners), mine)
	ns.count.Store(int32(len(ns.listeners)))
	ns.meta.OnWrite(ns.sendWritten)
	ns.mu.Unlock()
	return func() {
		ns.mu.Lock()
		defer ns.mu.Unlock()
		ns.listeners = slices.DeleteFunc(slices.Clone(ns.listeners), func(l *func(Notice)) bool { return l == mine })
		ns.count.Store(int32(len(ns.listeners)))
		if len(ns.listeners) == 0 {
			ns.meta.OnWrite(nil)
		}
	}
}
