package domain

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// kind is the kind of a request.
type kind uint8

const (
	kindSend kind = iota
	kindRecv
	// kindFlush waits until the peer has received everything sent before.
	kindFlush
)

// Request is a send or a receive that is pending or complete. Any number of goroutines may
// wait for it, any number of times, or none.
type Request struct {
	pair  *pair
	kind  kind
	tag   wire.Tag
	views []View
	// one is the storage for the only view of most requests.
	one   [1]View
	total devices.Size
	// stage is a copy of device memory that can be sent eagerly.
	stage []byte

	complete atomic.Bool
	// done holds one token after completion: a waiter that takes it puts it back.
	done chan struct{}
	// err is set before the token.
	err error
	// waiting counts the goroutines that wait: only requests with waiters form cycles.
	waiting atomic.Int32
	cycle   atomic.Pointer[[]wire.Rank]
	// probe is the number of the last probe, guarded by chases.mu.
	probe uint64
	timer *time.Timer

	// The following fields are guarded by pair.mu.

	// id is the number of the message, for a send.
	id   uint64
	over bool
	// begun is set when the envelope is written; eager is the kind of that envelope.
	begun  bool
	eager  bool
	wrote  cursor
	remote []place
	// withdrawn is the error that a send returns once the receiver has released it.
	withdrawn error
	// msg is the message that is matched with a receive.
	msg *message
	// stop cancels the pull.
	stop context.CancelFunc
}

// cursor is a position in the views of a request.
type cursor struct {
	view int
	off  devices.Size
	// n is the number of bytes before it.
	n devices.Size
}

func newRequest() *Request { return &Request{done: make(chan struct{}, 1)} }

// hold holds the memory of all views.
func (r *Request) hold() error {
	for i, v := range r.views {
		if err := v.buffer.Hold(); err != nil {
			drop(r.views[:i])
			return err
		}
	}
	return nil
}

func drop(views []View) {
	for _, v := range views {
		v.buffer.Drop()
	}
}

// next returns up to n contiguous bytes of host memory at a cursor, and the cursor after
// them.
func (r *Request) next(at cursor, n devices.Size) ([]byte, cursor) {
	for at.view < len(r.views) && at.off == r.views[at.view].size() {
		at.view, at.off = at.view+1, 0
	}
	if at.view == len(r.views) {
		return nil, at
	}
	v := r.views[at.view]
	n = min(n, v.size()-at.off)
	var p []byte
	if r.stage != nil {
		p = r.stage[at.n:][:n]
	} else {
		p = v.bytes(at.off, n)
	}
	at.off, at.n = at.off+n, at.n+n
	return p, at
}

// scatter copies bytes to the position of a cursor, and advances it.
func (r *Request) scatter(p []byte, at *cursor) {
	for len(p) > 0 {
		dst, behind := r.next(*at, devices.Size(len(p)))
		*at, p = behind, p[copy(dst, p):]
	}
}

// hosts reports whether all views are host memory.
func hosts(views []View) bool {
	for _, v := range views {
		if !v.host() {
			return false
		}
	}
	return true
}

// endLocked completes a request, once.
//
// +checklocks:p.mu
func (p *pair) endLocked(r *Request, err error) {
	if r.over {
		return
	}
	r.over = true
	delete(p.active, r)
	if r.stop != nil {
		r.stop()
	}
	drop(r.views)
	r.err = err
	r.complete.Store(true)
	r.done <- struct{}{}
}

// Wait waits for the end of the request and returns its error. If the context ends first,
// the request is still pending, and Wait may be called again.
//
// Errors: MismatchError; TimeoutError, with the context's error; ErrWithdrawn, ErrPeer,
// ErrLeft, ErrDestroyed; control.ErrDisconnected; the devices'.
func (r *Request) Wait(ctx context.Context) error {
	if done, err := r.Test(); done {
		return err
	}
	return r.wait(ctx, false)
}

// Test reports whether the request is complete, and if so its error.
func (r *Request) Test() (done bool, err error) {
	if !r.complete.Load() {
		return false, nil
	}
	return true, r.err
}

// firstProbe is the minimum time before the first probe, and between two probes.
const firstProbe = 10 * time.Millisecond

// wait implements Wait. keep leaves no token behind, for a request without other users.
func (r *Request) wait(ctx context.Context, keep bool) error {
	select {
	case <-r.done:
		return r.taken(keep)
	default:
	}
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	end := time.Now().Add(r.pair.c.d.opts.Timeout)
	if at, ok := ctx.Deadline(); ok {
		end = at
	}
	timer := r.clock(keep, nextLook(end))
	defer timer.Stop()
	defer r.pair.c.d.chases.forget(r)
	for {
		select {
		case <-r.done:
			return r.taken(keep)
		case <-ctx.Done():
			return r.timeout(ctx.Err())
		case <-timer.C:
			if !time.Now().Before(end) {
				return r.timeout(context.DeadlineExceeded)
			}
			// Half of the remaining time suffices for a cycle to be reported.
			r.pair.c.d.chases.begin(r)
			timer.Reset(nextLook(end))
		}
	}
}

// taken returns the error of the request; the caller has taken the token.
func (r *Request) taken(keep bool) error {
	if !keep {
		r.done <- struct{}{}
	}
	return r.err
}

// nextLook returns the time until the next check.
func nextLook(end time.Time) time.Duration {
	left := time.Until(end)
	return min(max(left/2, firstProbe), max(left, 0))
}

// clock returns a timer; own reuses that of a request with a single user.
func (r *Request) clock(own bool, d time.Duration) *time.Timer {
	if !own {
		return time.NewTimer(d)
	}
	if r.timer == nil {
		r.timer = time.NewTimer(d)
	} else {
		r.timer.Reset(d)
	}
	return r.timer
}

func (r *Request) timeout(err error) error {
	e := &TimeoutError{Domain: r.pair.c.name, Sending: r.kind != kindRecv, Peer: r.pair.world, Tag: r.tag, Err: err}
	if found := r.cycle.Load(); found != nil {
		e.Cycle = *found
	}
	return e
}

// Finish waits for a request without other users, and withdraws it if it times out, as Send
// and Recv do. No other method may be called then or later.
//
// Errors: those of Wait.
func (r *Request) Finish(ctx context.Context) error {
	err := r.wait(ctx, true)
	if err == nil {
		return nil
	}
	late, is := errors.AsType[*TimeoutError](err)
	if !is {
		return err
	}
	return r.withdraw(late) //nolint:contextcheck // the context has already ended
}

// withdraw withdraws a request. It returns nil if the request has completed meanwhile.
func (r *Request) withdraw(late error) error {
	p := r.pair
	p.mu.Lock()
	asked := p.giveUpLocked(r, late)
	p.mu.Unlock()
	if asked {
		select {
		case <-r.done:
			return r.err
		case <-time.After(p.c.d.opts.Grace):
		}
		// A receiver that does not answer must not read our bytes later.
		revoked := p.revoke(r.views)
		p.mu.Lock()
		delete(p.sending, r.id)
		p.endLocked(r, errors.Join(late, revoked))
		p.mu.Unlock()
	}
	<-r.done
	return r.err
}

// describe adds the request to an error.
func (r *Request) describe(err error) error {
	return fmt.Errorf("domain %q: %s %s, tag %d: %w", r.pair.c.name, verb(r.kind != kindRecv), r.pair.world, r.tag, err)
}
