package objects

import (
	"context"
	"fmt"
	"slices"
)

// OnChange sets a function to be called for changes that the kernel has not requested:
// with lost false when an object was bound, its content replaced by a Draft, or its expiry
// changed; with lost true when an object was lost with its owner, or a registered file was
// written, so that cached bytes are stale. For a binding, the call may be made within Bind.
// fn must not call the store; readers don't wait for it. nil removes the function; no call
// is under way when OnChange returns.
func (s *Store) OnChange(fn func(ino Ino, lost bool)) {
	s.changes.notifying.Lock()
	defer s.changes.notifying.Unlock()
	s.changes.notify = fn
}

// OnNotice adds a function to be called after every change of attributes, content or
// names that was made through the store, by any caller; writes of the kernel to a host
// file by passthrough are reported when the file is closed. fn may also be called for
// things that have not changed. It must not wait, and must not call the store. cancel
// removes the function; after it returns, fn is not running and won't be called again.
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

// Listen makes a queue of the events from now on. Close ends it. The queue is bounded:
// if it is not read, the oldest events are dropped and replaced by one EventDropped.
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

// SetAuthority makes a the authority on keys, and reports all existing keys to it. With
// nil, there is none: every key that is free on this node may be used.
//
// Errors: those of reading the records; a is the authority all the same.
func (s *Store) SetAuthority(ctx context.Context, a KeyAuthority) error {
	c := s.claims
	c.mu.Lock()
	c.authority = a
	c.mu.Unlock()
	if a == nil {
		return nil
	}
	if err := s.claims.tellKeys(ctx); err != nil {
		return fmt.Errorf("announce the existing keys: %w", err)
	}
	return nil
}
