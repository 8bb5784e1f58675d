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
	// kindFlush waits for the peer to have received what was sent before.
	kindFlush
)

// Request is a send or a receive that is under way or complete. It may be
// waited for by several goroutines, in any order and as often as they like, or
// not at all.
type Request struct {
	pair  *pair
	kind  kind
	tag   wire.Tag
	views []View
	// one has the only view of most requests.
	one   [1]View
	total devices.Size
	// stage is a copy of device memory that goes without being asked for.
	stage []byte

	complete atomic.Bool
	// done holds one token from the completion on: who takes it puts it back.
	done chan struct{}
	// err is set before the token is there.
	err error
	// waiting counts the goroutines that wait: the ranks that a cycle is made of
	// have some.
	waiting atomic.Int32
	cycle   atomic.Pointer[[]wire.Rank]
	timer   *time.Timer

	// What follows is guarded by pair.mu.

	// id is the number of the message, where it is sent.
	id   uint64
	over bool
	// begun is set when the envelope is written; eager says what it was.
	begun  bool
	eager  bool
	wrote  cursor
	remote []place
	// withdrawn is the error of a send when the receiver has let it go.
	withdrawn error
	// msg is the message that a receive has met.
	msg *message
	// stop ends the pull.
	stop context.CancelFunc
}

// cursor is a place in the views of a request.
type cursor struct {
	view int
	off  devices.Size
	// n is the bytes before it.
	n devices.Size
}

func newRequest() *Request { return &Request{done: make(chan struct{}, 1)} }

// hold keeps the memory of all views.
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

// next are up to n bytes from a cursor that lie in one piece of host memory,
// and the cursor behind them.
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

// scatter copies bytes to where a cursor stands, and moves it.
func (r *Request) scatter(p []byte, at *cursor) {
	for len(p) > 0 {
		dst, behind := r.next(*at, devices.Size(len(p)))
		*at, p = behind, p[copy(dst, p):]
	}
}

// hosts says whether all views are host memory.
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

// Wait waits for the end of the request and returns its outcome. When the
// context ends first, the request is still under way and may be waited for
// again.
//
// Errors: MismatchError; TimeoutError, with the context's; ErrWithdrawn,
// ErrPeer, ErrLeft, ErrDestroyed; control.ErrDisconnected; the devices'.
func (r *Request) Wait(ctx context.Context) error {
	if done, err := r.Test(); done {
		return err
	}
	return r.wait(ctx, false)
}

// Test says whether the request is complete, and its outcome then.
func (r *Request) Test() (done bool, err error) {
	if !r.complete.Load() {
		return false, nil
	}
	return true, r.err
}

// firstProbe is the soonest that a cycle is looked for, and the least time
// between two looks.
const firstProbe = 10 * time.Millisecond

// wait is Wait; keep leaves no token behind, for requests that nobody else
// knows.
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
			// The half of what is left is time enough to be told of a cycle.
			r.pair.c.d.chases.begin(r)
			timer.Reset(nextLook(end))
		}
	}
}

// taken is the outcome, for who has the token.
func (r *Request) taken(keep bool) error {
	if !keep {
		r.done <- struct{}{}
	}
	return r.err
}

// nextLook is after how long the clock is looked at again.
func nextLook(end time.Time) time.Duration {
	left := time.Until(end)
	return min(max(left/2, firstProbe), max(left, 0))
}

// clock is a timer; that of a request which only one goroutine knows is used
// again.
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

// finish waits for a request that nobody else knows, and takes it back when
// its time is over.
func (r *Request) finish(ctx context.Context) error {
	err := r.wait(ctx, true)
	if err == nil {
		return nil
	}
	var late *TimeoutError
	if !errors.As(err, &late) {
		return err
	}
	return r.withdraw(late) //nolint:contextcheck // the context has ended
}

// withdraw takes a request back. It returns nil for one that was done in the
// last moment.
func (r *Request) withdraw(late error) error {
	p := r.pair
	p.mu.Lock()
	asked := p.giveUpLocked(r, late)
	p.mu.Unlock()
	if asked {
		grace := time.NewTimer(p.c.d.opts.Grace)
		defer grace.Stop()
		select {
		case <-r.done:
			return r.err
		case <-grace.C:
		}
		// A receiver that does not answer must not find our bytes later.
		revoked := p.revoke(r.views)
		p.mu.Lock()
		delete(p.sending, r.id)
		p.endLocked(r, errors.Join(late, revoked))
		p.mu.Unlock()
	}
	<-r.done
	return r.err
}

// describe names the request in errors.
func (r *Request) describe(err error) error {
	verb := "receive from"
	if r.kind != kindRecv {
		verb = "send to"
	}
	return fmt.Errorf("domain %q: %s %s, tag %d: %w", r.pair.c.name, verb, r.pair.world, r.tag, err)
}
