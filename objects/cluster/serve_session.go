package cluster

import (
	"context"
	"fmt"
	"sync"
	"syscall"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// maxHandles is how many files a session may have open.
const maxHandles = 1 << 16

// session is one session with another node: what it has open, and what it has
// to be told.
type session struct {
	from   rpc.Caller
	server *server
	gone   chan struct{} // closed at the end

	mu sync.Mutex
	// +checklocks:mu
	handles map[uint64]*handle
	// +checklocks:mu
	over bool
	// +checklocks:mu
	pending pending
	// pushing says that a goroutine sends what is pending.
	// +checklocks:mu
	pushing bool
}

// handle is a file that a session has open. The session's mu guards users and
// closed.
type handle struct {
	file   *objects.File
	access Access
	who    user
	// end is called instead of closing the file; nil for a file that the
	// session has opened.
	end func()
	// users are the questions that use it.
	users  int
	closed bool
}

// add gives a file a number. The file is the session's then.
func (ss *session) add(h *handle) (uint64, error) {
	s := ss.server
	s.mu.Lock()
	if s.handle++; s.handle == 0 {
		s.handle++ // 0 is no handle
	}
	number := s.handle
	s.mu.Unlock()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	switch {
	case ss.over:
		return 0, fmt.Errorf("the session has ended: %w", ErrStale)
	case len(ss.handles) >= maxHandles:
		return 0, fmt.Errorf("%d files open: %w", len(ss.handles), syscall.EMFILE)
	case ss.handles == nil:
		ss.handles = map[uint64]*handle{}
	}
	ss.handles[number] = h
	s.push.hold(ss, h.file.Ino())
	return number, nil
}

// use finds a handle that allows what is wanted, and keeps its file open until
// done.
//
// Errors: ErrStale; ErrDenied.
func (ss *session) use(number uint64, want Access) (*handle, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	h := ss.handles[number]
	switch {
	case h == nil:
		return nil, fmt.Errorf("handle %#x: %w", number, ErrStale)
	case h.access&want != want:
		return nil, fmt.Errorf("handle %#x was not opened for this: %w", number, ErrDenied)
	}
	h.users++
	return h, nil
}

// done ends a use. With the last one of a closed handle its file is closed.
func (ss *session) done(ctx context.Context, h *handle) {
	ss.mu.Lock()
	h.users--
	last := h.users == 0 && h.closed
	ss.mu.Unlock()
	if last {
		ss.release(ctx, h)
	}
}

// take removes a handle, which the caller then uses and is done with.
//
// Errors: ErrStale.
func (ss *session) take(number uint64) (*handle, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	h := ss.handles[number]
	if h == nil {
		return nil, fmt.Errorf("handle %#x: %w", number, ErrStale)
	}
	delete(ss.handles, number)
	h.closed = true
	h.users++
	return h, nil
}

// finish ends the session and returns the handles that it had. Nobody uses
// them.
func (ss *session) finish() []*handle {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.over {
		return nil
	}
	ss.over = true
	close(ss.gone)
	var left []*handle
	for _, h := range ss.handles {
		left = append(left, h)
	}
	ss.handles = nil
	return left
}

// release closes the file of a handle that nobody uses any more.
func (ss *session) release(ctx context.Context, h *handle) {
	ss.server.push.unhold(ss, h.file.Ino())
	if h.end != nil {
		h.end()
		return
	}
	_ = h.file.Close(context.WithoutCancel(ctx)) // the store has logged what fails
}

// hold gives a session a handle to read a file that somebody else has opened.
// end is called once instead of closing the file: when the session closes the
// handle, or ends.
//
// Errors: errNoHello; ErrStale; EMFILE. end is not called then.
func (s *server) hold(from rpc.Caller, f *objects.File, end func()) (uint64, error) {
	ss, err := s.session(from)
	if err != nil {
		return 0, err
	}
	return ss.add(&handle{file: f, access: Read, end: end})
}
