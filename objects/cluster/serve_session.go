package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// maxHandles bounds the files that a session may have open.
const maxHandles = 1 << 16

// servedSession is one session with another node: its open files, and the notices pending for
// it.
type servedSession struct {
	from   rpc.Caller
	server *server
	held   bool          // the node may pause, see members.Record
	gone   chan struct{} // closed at the end

	mu sync.Mutex
	// +checklocks:mu
	handles map[uint64]*handle
	// +checklocks:mu
	over bool
	// +checklocks:mu
	pending pending
	// pushing is true while a goroutine sends the pending notices.
	// +checklocks:mu
	pushing bool
}

// handle is a file that a session has open. The session's mu guards users and closed.
type handle struct {
	file   *objects.File
	access objects.Permission
	who    User
	// end is called instead of closing the file; nil for a file that the session has opened.
	end func()
	// users counts the requests that use it.
	users  int
	closed bool
}

// add assigns a number to a file. The session then owns the file.
func (g *servedSession) add(ctx context.Context, h *handle) (uint64, error) {
	e := g.server.o.Elsewhere
	e.add(g.from.Rank, h)
	number, err := g.number(h)
	if err != nil {
		e.remove(h)
		return 0, err
	}
	e.added(ctx, g.from.Rank, h)
	return number, nil
}

// number is add for a handle that is recorded.
func (g *servedSession) number(h *handle) (uint64, error) {
	s := g.server
	s.mu.Lock()
	if s.handle++; s.handle == 0 {
		s.handle++ // 0 is no handle
	}
	number := s.handle
	s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.over:
		return 0, fmt.Errorf("the session has ended: %w", ErrStale)
	case len(g.handles) >= maxHandles:
		return 0, fmt.Errorf("%d files open, which is the maximum: %w", len(g.handles), syscall.EMFILE)
	case g.handles == nil:
		g.handles = map[uint64]*handle{}
	}
	g.handles[number] = h
	s.push.hold(g, h.file.Ino())
	return number, nil
}

// use returns a handle that permits want, and keeps its file open until done.
//
// Errors: ErrStale; ErrDenied.
func (g *servedSession) use(number uint64, want objects.Permission) (*handle, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.handles[number]
	switch {
	case h == nil:
		return nil, fmt.Errorf("unknown handle %#x: %w", number, ErrStale)
	case h.access&want != want:
		return nil, fmt.Errorf("handle %#x was not opened for this access: %w", number, ErrDenied)
	}
	h.users++
	return h, nil
}

// done ends a use. The last use of a closed handle closes its file.
func (g *servedSession) done(ctx context.Context, h *handle) {
	g.mu.Lock()
	h.users--
	last := h.users == 0 && h.closed
	g.mu.Unlock()
	if last {
		g.release(ctx, h)
	}
}

// take removes a handle; the caller uses it and must call done.
//
// Errors: ErrStale.
func (g *servedSession) take(number uint64) (*handle, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.handles[number]
	if h == nil {
		return nil, fmt.Errorf("unknown handle %#x: %w", number, ErrStale)
	}
	delete(g.handles, number)
	h.closed = true
	h.users++
	return h, nil
}

// finish ends the session and returns its handles, which from then on only extensions use.
func (g *servedSession) finish() (left []*handle) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return nil
	}
	g.over = true
	close(g.gone)
	left = slices.Collect(maps.Values(g.handles))
	g.handles = nil
	return left
}

// release closes the file of a handle that is no longer in use.
func (g *servedSession) release(ctx context.Context, h *handle) {
	g.server.push.unhold(g, h.file.Ino())
	g.server.o.Elsewhere.remove(h)
	if h.end != nil {
		h.end()
		return
	}
	_ = h.file.Close(context.WithoutCancel(ctx)) // the store has logged what fails
}

// hold gives a session a handle for reading a file that was opened elsewhere. end is called
// once instead of closing the file: when the session closes the handle, or ends.
//
// Errors: errNoHello; ErrStale; EMFILE. end is then not called.
func (s *server) hold(ctx context.Context, from rpc.Caller, f *objects.File, end func()) (uint64, error) {
	g, err := s.session(from)
	if err != nil {
		return 0, err
	}
	return g.add(ctx, &handle{file: f, access: objects.PermRead, end: end})
}
