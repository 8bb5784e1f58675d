package objects

import (
	"slices"
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

// OnNotice has fn called after every change of attributes, content or names
// that went through the store, by any caller; what the kernel writes to a host
// file by itself is noticed when the file is closed. fn may be told of more
// than has changed. It must not wait and calls nothing of the store's. cancel
// returns when fn is not running and won't be called again.
func (s *Store) OnNotice(fn func(Notice)) (cancel func()) {
	n := s.notices
	mine := &fn
	n.mu.Lock()
	n.listeners = append(slices.Clone(n.listeners), mine)
	n.count.Store(int32(len(n.listeners)))
	s.meta.OnWrite(s.notices.sendWritten)
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.listeners = slices.DeleteFunc(slices.Clone(n.listeners), func(l *func(Notice)) bool { return l == mine })
		n.count.Store(int32(len(n.listeners)))
		if len(n.listeners) == 0 {
			s.meta.OnWrite(nil)
		}
	}
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
