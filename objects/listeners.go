package objects

import (
	"context"
)

// OnChange sets a function to be called for changes that the kernel has not requested:
// with lost false when an object was bound, its content replaced by a Draft, or its expiry
// changed; with lost true when an object was lost with its owner, or a registered file was
// written, so that cached bytes are stale. For a binding, the call may be made within Bind.
// fn must not call the store; readers don't wait for it. nil removes the function; no call
// is under way when OnChange returns.
func (s *Store) OnChange(fn func(ino Ino, lost bool)) {
	s.changes.set(fn)
}

// OnNotice adds a function to be called after every change of attributes, content or
// names that was made through the store, by any caller; writes of the kernel to a host
// file by passthrough are reported when the file is closed. fn may also be called for
// things that have not changed. It must not wait, and must not call the store. cancel
// removes the function; after it returns, fn is not running and won't be called again.
func (s *Store) OnNotice(fn func(Notice)) (cancel func()) {
	return s.notices.listen(s.meta, fn)
}

// Listen makes a queue of the events from now on. Close ends it. The queue is bounded:
// if it is not read, the oldest events are dropped and replaced by one EventDropped.
func (s *Store) Listen() *Events {
	return s.events.listen()
}

// SetAuthority makes a the authority on keys, and reports all existing keys to it. With
// nil, there is none: every key that is free on this node may be used.
//
// Errors: those of reading the records; a is the authority all the same.
func (s *Store) SetAuthority(ctx context.Context, a KeyAuthority) error {
	return s.claims.setAuthority(ctx, a)
}
