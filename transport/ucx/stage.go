package ucx

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// stageChunk is the size, in bytes, of one piece of staged device memory:
	// long enough for a device's copy to be worth its call.
	stageChunk = devices.MiB
	// stageWays is the number of pieces in progress: one with the device, one
	// with the network, one between them.
	stageWays = 3
)

// staged is a put from, or a get into, device memory. Each of its goroutines
// moves one piece at a time through a slot of its own, so that device and network
// work concurrently.
type staged struct {
	p     *Provider
	op    window.Op
	first op
	// pieces is the number of pieces, next the next one to move.
	pieces uint64
	next   atomic.Uint64

	mu sync.Mutex
	// +checklocks:mu
	left int
	// +checklocks:mu
	err error
}

// stage starts to move device memory.
func (p *Provider) stage(o *window.Op, first op) {
	s := &staged{p: p, op: *o, first: first, pieces: uint64((o.Size + stageChunk - 1) / stageChunk)}
	ways := int(min(stageWays, s.pieces))
	s.left = ways
	p.mu.Lock()
	if err := p.Err(); err != nil {
		p.mu.Unlock()
		first.done.Complete(err)
		return
	}
	for range ways {
		p.staging.Go(s.run)
	}
	p.mu.Unlock()
}

// run moves pieces until there are no more, or one has failed.
func (s *staged) run() {
	err := s.work()
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.left--
	last := s.left == 0
	err = s.err
	s.mu.Unlock()
	if !last {
		return
	}
	if cause := s.p.Err(); err != nil && cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	s.first.done.Complete(err)
}

func (s *staged) work() error {
	ctx := s.p.life
	slot, err := s.p.ctx.opts.Engine.Slots().Get(ctx, min(stageChunk, s.op.Size))
	if err != nil {
		return err
	}
	defer slot.Release()
	wait := make(waiter, 1)
	for {
		i := s.next.Add(1) - 1
		if i >= s.pieces || s.failed() {
			return nil
		}
		off := devices.Size(i) * stageChunk
		if err := s.piece(ctx, slot.Bytes()[:min(stageChunk, s.op.Size-off)], off, wait); err != nil {
			return err
		}
	}
}

// piece moves len(mem) bytes from off through mem.
func (s *staged) piece(ctx context.Context, mem []byte, off devices.Size, wait waiter) error {
	at := s.op.LocalOff + devices.Offset(off)
	if s.op.Kind == wire.KindPut {
		if err := s.op.Local.Load(ctx, transport.HostSpan(mem), at); err != nil {
			return err
		}
	}
	o := s.first
	o.mem, o.at, o.done = mem, o.at+uint64(off), wait
	s.p.submit(o)
	// It always completes: the provider's end completes pending operations.
	if err := <-wait; err != nil || s.op.Kind == wire.KindPut {
		return err
	}
	return s.op.Local.Store(ctx, at, transport.HostSpan(mem))
}

// failed reports whether another of the goroutines has failed.
func (s *staged) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// waiter is a Completer with room for its one result.
type waiter chan error

// Complete passes the result on.
func (w waiter) Complete(err error) { w <- err }
