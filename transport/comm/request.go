package comm

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/side"
	"github.com/hmcfs/hmcfs/transport/tcp"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Op describes the bytes that a put or a get moves: Size bytes between a place in
// local registered memory and one in a region that the peer has shared.
type Op struct {
	Local     *region.Buffer
	LocalOff  devices.Offset
	Remote    wire.Descriptor
	RemoteOff uint64
	// Size is in bytes. 0 moves nothing and is checked all the same.
	Size devices.Size
	// Ordered makes the bytes be written from the first to the last, by one data
	// connection or by shared memory: if it fails, the beginning is in place.
	Ordered bool
}

// check refuses operations that the peer would refuse anyway.
func (o *Op) check(need wire.Rights) error {
	if o.Local == nil {
		return fmt.Errorf("no local buffer: %w", devices.ErrRange)
	}
	if err := o.Local.Check(o.LocalOff, o.Size); err != nil {
		return err
	}
	if !(devices.Range{Off: devices.Offset(o.RemoteOff), Len: o.Size}).Within(devices.Size(o.Remote.Size)) {
		return fmt.Errorf("range of %d bytes from %d exceeds the shared region of %d bytes: %w", uint64(o.Size), o.RemoteOff, o.Remote.Size, devices.ErrRange)
	}
	if !o.Remote.Rights.Allows(need) {
		return fmt.Errorf("the key only allows %s: %w", o.Remote.Rights, region.ErrRights)
	}
	return nil
}

// Request is a put or a get that is in progress or complete. Several goroutines
// may wait for it, in any order and any number of times, or none at all.
type Request struct {
	// transfer is used by data connections, use and op by windows.
	transfer tcp.Transfer
	use      side.Use
	op       window.Op
	// channel is the data connection of a small request whose caller waits.
	channel  *tcp.Channel
	session  *session
	era      *era
	complete atomic.Bool
	givenUp  atomic.Bool
	// done holds one token after the completion: a receiver puts it back.
	done chan struct{}
	// err is set before the token is sent.
	err error
}

func newRequest() *Request { return &Request{done: make(chan struct{}, 1)} }

// Complete is called by the transport.
func (r *Request) Complete(err error) {
	// A fence that returns must find the request complete, and the session ended
	// if that is the reason.
	r.err = r.session.seen(err)
	r.complete.Store(true)
	r.session.leave(r.era)
	r.done <- struct{}{}
}

// Wait waits for the end of the request and returns its result. When the context
// ends first, the request is still in progress and can be waited for again.
func (r *Request) Wait(ctx context.Context) error {
	if done, err := r.Test(); done {
		return err
	}
	select {
	case <-r.done:
		r.done <- struct{}{}
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("wait for a request: %w", ctx.Err())
	}
}

// GiveUp starts nothing more of the request: it completes soon, with
// window.ErrGivenUp unless it was complete or had failed. Parts in flight are
// waited for, for at most Options.Timeout.
func (r *Request) GiveUp() {
	if r.complete.Load() {
		return
	}
	if r.use.Found() {
		r.givenUp.Store(true)
		return
	}
	r.transfer.GiveUp(window.ErrGivenUp)
}

// Test reports whether the request is complete, and its result then.
func (r *Request) Test() (done bool, err error) {
	if !r.complete.Load() {
		return false, nil
	}
	return true, r.err
}

// start checks and posts a request.
func (c *Communicator) start(ctx context.Context, r *Request, peer wire.Rank, kind wire.Kind, op *Op, waits bool) error {
	s, err := c.session(ctx, peer)
	if err != nil {
		return err
	}
	need := wire.Writable
	if kind == wire.KindGet {
		need = wire.Readable
	}
	if err = op.check(need); err != nil {
		return err
	}
	r.session = s
	if r.era, err = s.enter(); err != nil {
		return err
	}
	if op.Size == 0 {
		r.Complete(nil)
		return nil
	}
	found, err := s.open(r, kind, need, op, waits)
	if !found {
		err = s.send(r, kind, op, waits)
	}
	if err != nil {
		s.leave(r.era)
	}
	return err
}

// send passes a request to the data connections.
func (s *session) send(r *Request, kind wire.Kind, op *Op, waits bool) error {
	if err := r.transfer.Start(tcp.Plan{
		Kind: kind, Local: op.Local, LocalOff: op.LocalOff, Key: op.Remote.Key, RemoteOff: op.RemoteOff, Size: op.Size,
	}, r); err != nil {
		return err
	}
	// With several channels, a caller waiting on one would not serve the peer on
	// the others.
	if waits && op.Size <= tcp.MaxAwaited && len(s.channels) == 1 {
		r.channel = s.channels[0]
		r.channel.Post(&r.transfer)
		return nil
	}
	if op.Ordered {
		s.pick().Post(&r.transfer)
	} else {
		s.post(&r.transfer, op.Size)
	}
	s.recall()
	return nil
}

// wait runs a request to its end, and keeps it for reuse if it completed.
func (c *Communicator) wait(ctx context.Context, peer wire.Rank, kind wire.Kind, op *Op) error {
	r, ok := c.requests.Get().(*Request)
	if !ok {
		r = newRequest()
	}
	err := c.start(ctx, r, peer, kind, op, true)
	if err == nil {
		if err = r.await(ctx); err != nil {
			return c.failed(peer, kind, op, err)
		}
		err = r.err
	}
	r.complete.Store(false)
	r.err, r.session, r.era, r.channel = nil, nil, nil, nil
	c.requests.Put(r)
	if err != nil {
		return c.failed(peer, kind, op, err)
	}
	return nil
}

// await receives the token of the completion, or fails with the context's error.
func (r *Request) await(ctx context.Context) error {
	if r.channel != nil {
		return r.channel.Await(ctx, r.done, &r.complete)
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Communicator) failed(peer wire.Rank, kind wire.Kind, op *Op, err error) error {
	return fmt.Errorf("%s of %v with %s: %w", kind, op.Size, peer, err)
}

// Put copies local bytes into the peer's memory and returns when they are in
// place.
//
// Errors: devices.ErrRange, region.ErrRights and region.ErrKey, from either side;
// devices.ErrClosed for a local buffer that is closed; the devices';
// control.ErrDisconnected; ErrNotConnected; the context's: see the package
// comment for the state that this leaves.
func (c *Communicator) Put(ctx context.Context, peer wire.Rank, op Op) error {
	return c.wait(ctx, peer, wire.KindPut, &op)
}

// Get copies bytes of the peer's memory into local memory. Its errors are those
// of Put.
func (c *Communicator) Get(ctx context.Context, peer wire.Rank, op Op) error {
	return c.wait(ctx, peer, wire.KindGet, &op)
}

// PutAsync starts a put. The local bytes must not change before the request is
// complete. The context covers the start only.
func (c *Communicator) PutAsync(ctx context.Context, peer wire.Rank, op Op) (*Request, error) {
	return c.async(ctx, peer, wire.KindPut, &op)
}

// GetAsync starts a get. The context covers the start only.
func (c *Communicator) GetAsync(ctx context.Context, peer wire.Rank, op Op) (*Request, error) {
	return c.async(ctx, peer, wire.KindGet, &op)
}

func (c *Communicator) async(ctx context.Context, peer wire.Rank, kind wire.Kind, op *Op) (*Request, error) {
	r := newRequest()
	if err := c.start(ctx, r, peer, kind, op, false); err != nil {
		return nil, c.failed(peer, kind, op, err)
	}
	return r, nil
}

// PutNotify is a Put and, if it succeeds, a SendTag: the receiver of the tag sees
// the bytes. A put that fails or is refused sends no tag.
//
// The tag waits for the put's answer, so a small one arrives about a round trip
// after the bytes: a put of 8 bytes and its tag take 52 µs over loopback and 33
// over a Unix socket, a tag alone 31 and 19 (half of BenchmarkNotify's rounds,
// medians of five, a busy machine). A tag that follows the bytes directly would
// have to keep its order among the tags of the control connection, and would have
// to be held back for frames of other connections, for device memory that is
// still being written, and for a put that is refused: a protocol of its own, to
// save less than one round trip.
func (c *Communicator) PutNotify(ctx context.Context, peer wire.Rank, op Op, tag wire.Tag) error {
	if err := c.Put(ctx, peer, op); err != nil {
		return err
	}
	return c.SendTag(ctx, peer, tag)
}

// Fence waits until every request to a peer that was started is complete. Each
// request reports its own result.
//
// Errors: control.ErrDisconnected if the session ended meanwhile.
func (c *Communicator) Fence(ctx context.Context, peer wire.Rank) error {
	s, err := c.session(ctx, peer)
	if err != nil {
		return err
	}
	return s.fence(ctx)
}

// Flush is Fence with every peer whose session is live.
func (c *Communicator) Flush(ctx context.Context) error {
	for _, p := range c.Peers() {
		if err := c.Fence(ctx, p.Rank); err != nil {
			return err
		}
	}
	return nil
}

// SendMessage sends a copy of up to wire.MaxMessage bytes, without a fence.
func (c *Communicator) SendMessage(ctx context.Context, peer wire.Rank, p []byte) error {
	s, err := c.session(ctx, peer)
	if err != nil {
		return err
	}
	return s.seen(s.link.SendMessage(ctx, p))
}

// RecvMessage returns the next message of a peer, which belongs to the caller.
func (c *Communicator) RecvMessage(ctx context.Context, peer wire.Rank) ([]byte, error) {
	s, err := c.session(ctx, peer)
	if err != nil {
		return nil, err
	}
	s.recall()
	p, err := s.link.RecvMessage(ctx)
	return p, s.seen(err)
}
