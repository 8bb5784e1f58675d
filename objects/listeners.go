package objects

import (
	"context"
	"fmt"
	"slices"
)

// OnChange has fn called when an object was bound, when it gets another end, and
// when it is lost with its owner, which nobody has asked for. When it is bound,
// fn may be called within Bind. fn calls nothing of the store's, and nobody who reads waits for it. nil
// ends it; no call is under way when OnChange returns.
func (s *Store) OnChange(fn func(ino Ino, lost bool)) {
	s.changes.notifying.Lock()
	defer s.changes.notifying.Unlock()
	s.changes.notify = fn
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

// Listen begins a queue of what happens from now on. Close ends it. A queue
// that nobody reads is bounded: the oldest events go, and one EventDropped
// stands in their place.
func (s *Store) Listen() *Events {
	h := s.events
	e := &Events{hub: h, came: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.ended = h.closed; e.ended {
		return e
	}
	if h.queues == nil {
		h.queues = map[*Events]struct{}{}
	}
	h.queues[e] = struct{}{}
	e.next = h.seq + 1
	return e
}

// SetAuthority has a decide from now on, and tells it of all keys that are
// there. nil is nobody: every key that is free here may be used.
//
// Errors: those of reading the records; a decides all the same.
func (s *Store) SetAuthority(ctx context.Context, a KeyAuthority) error {
	c := s.claims
	c.mu.Lock()
	c.authority = a
	c.mu.Unlock()
	if a == nil {
		return nil
	}
	if err := s.claims.tellKeys(ctx); err != nil {
		return fmt.Errorf("tell of the keys that are there: %w", err)
	}
	return nil
}
