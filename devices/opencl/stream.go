package opencl

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// codeGivenUp is what a user event fails with when its stream is closed, or
// what it stands for has failed.
const codeGivenUp Code = -9999

// stream is a queue of the device whose commands nobody waits for one by one.
type stream struct {
	d     *device
	queue queueID
	// waiters are the goroutines that wait for something to set a user event.
	waiters sync.WaitGroup
	cancel  context.CancelFunc
	ctx     context.Context //nolint:containedctx // as long as the stream: it ends the waiters

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// failed is the first error that is known.
	// +checklocks:mu
	failed error
	// pending are commands that may not be done, in order.
	// +checklocks:mu
	pending []pending
	// gates are user events that nothing has set yet; nil once closed.
	// +checklocks:mu
	gates map[eventPointer]struct{}
}

// pending is a command and the memory that it uses.
type pending struct {
	event eventPointer
	mems  []*devices.Memory
}

// NewStream makes a queue of its own.
func (d *device) NewStream(ctx context.Context) (devices.Stream, error) {
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	q, err := d.api.createQueue(d.context, d.entry.id)
	if err != nil {
		return nil, err
	}
	s := &stream{d: d, queue: q, gates: map[eventPointer]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s, nil
}

// NewStream makes a stream that the host drives: a command may begin only once
// no host user is left, which a queue can't wait for (H2).
func (d *mappedDevice) NewStream(ctx context.Context) (devices.Stream, error) {
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	return devices.NewHostStream(ctx, d.self), nil
}

// HostDriven says that the device does the work by itself. It is the host that
// sets the events which a stream waits for from elsewhere.
func (s *stream) HostDriven() bool { return false }

// Copy begins a copy inside the device.
func (s *stream) Copy(dst, src devices.Span) error {
	if err := src.Check(s.d.self); err != nil {
		return err
	}
	if dst.Len != src.Len {
		return fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, s.d.info.Name, devices.ErrRange)
	}
	if dst.Mem == src.Mem && dst.Overlaps(src.Range) {
		return s.byHost(func(ctx context.Context) error { return s.d.Copy(ctx, dst, src) }, dst, src)
	}
	return s.begin(func() (eventPointer, error) {
		return s.d.api.startCopy(s.queue, s.d.place(dst), s.d.place(src), uint64(src.Len))
	}, dst, src)
}

// Fill begins to set bytes.
func (s *stream) Fill(dst devices.Span, value byte) error {
	return s.begin(func() (eventPointer, error) {
		return s.d.api.startFill(s.queue, s.d.place(dst), uint64(dst.Len), value)
	}, dst)
}

// Reduce begins to combine elements: by a kernel, or by the host where the device
// has none.
func (s *stream) Reduce(dst, src devices.Span, t elem.Type, op elem.Op) error {
	if err := devices.CheckReduce(s.d.self, dst, src, t, op); err != nil {
		return err
	}
	err := devices.ErrUnsupported
	if devices.Aligned(t, dst, src) && !s.d.entry.isHost() {
		r := reduction{dst: s.d.place(dst), src: s.d.place(src), t: t, op: op}
		err = s.begin(func() (eventPointer, error) {
			event, code, rerr := s.d.startReduce(s.queue, r, dst.Len)
			if rerr != nil {
				return 0, rerr
			}
			return event, check("clEnqueueNDRangeKernel", code)
		}, dst, src)
	}
	if errors.Is(err, devices.ErrUnsupported) {
		return s.byHost(func(ctx context.Context) error { return devices.Reduce(ctx, dst, src, t, op) }, dst, src)
	}
	return err
}

// begin starts a command on spans, which are checked and held until it is done.
func (s *stream) begin(command func() (eventPointer, error), spans ...devices.Span) error {
	empty := len(spans) > 0
	for _, span := range spans {
		if err := span.Check(s.d.self); err != nil {
			return err
		}
		empty = empty && span.Len == 0
	}
	leave, err := s.d.life.Enter(context.Background(), s.d.self)
	if err != nil {
		return err
	}
	defer leave()
	defer s.reap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = s.usable(); err != nil || empty {
		return err
	}
	event, err := command()
	if err != nil {
		return err
	}
	p := pending{event: event}
	for _, span := range spans {
		span.Mem.Retain()
		p.mems = append(p.mems, span.Mem)
	}
	s.pending = append(s.pending, p)
	return s.d.api.flush(s.queue)
}

// usable says why nothing can be asked for any more.
//
// +checklocks:s.mu
func (s *stream) usable() error {
	if s.closed {
		return fmt.Errorf("stream of %s: %w", s.d.info.Name, devices.ErrClosed)
	}
	return s.failed
}

// fail keeps the first error.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

// reap lets go of what is done.
func (s *stream) reap() {
	s.mu.Lock()
	var done []pending
	for len(s.pending) > 0 {
		status, err := s.d.api.status(s.pending[0].event)
		if err == nil && status > 0 {
			break
		}
		if err = errors.Join(err, check("command of a stream", min(status, 0))); err != nil && s.failed == nil {
			s.failed = err
		}
		done = append(done, s.pending[0])
		s.pending = s.pending[1:]
	}
	s.mu.Unlock()
	for _, p := range done {
		for _, m := range p.mems {
			s.d.releaseMemory(m)
		}
		_ = s.d.api.releaseEvent(p.event) // an event that stays is no harm
	}
}

// Record makes an event behind all commands.
func (s *stream) Record() (devices.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	id, err := s.d.api.marker(s.queue)
	if err != nil {
		return nil, err
	}
	return &event{stream: s, id: id}, s.d.api.flush(s.queue)
}

// Sync waits for all commands.
func (s *stream) Sync(ctx context.Context) error {
	e, err := s.Record()
	if err != nil {
		return err
	}
	err = errors.Join(e.Wait(ctx), e.Close())
	s.reap()
	return err
}

// After has later commands wait: for an event of the device by itself, for any
// other by a user event that the host sets.
func (s *stream) After(e devices.Event) error {
	if own, ok := e.(*event); ok && own.stream.d == s.d {
		return s.begin(func() (eventPointer, error) { return s.d.api.barrier(s.queue, own.id) })
	}
	gate, err := s.block()
	if err != nil {
		return err
	}
	if n, ok := e.(devices.Notifier); ok {
		n.Notify(func(err error) { s.unblock(gate, err) })
		return nil
	}
	s.waiters.Go(func() { s.unblock(gate, e.Wait(s.ctx)) })
	return nil
}

// byHost has the host do a piece of work between the commands before and behind
// it.
func (s *stream) byHost(work func(context.Context) error, spans ...devices.Span) error {
	for _, span := range spans {
		if err := span.Check(s.d.self); err != nil {
			return err
		}
	}
	before, err := s.Record()
	if err != nil {
		return err
	}
	gate, err := s.block()
	if err != nil {
		return errors.Join(err, before.Close())
	}
	for _, span := range spans {
		span.Mem.Retain()
	}
	s.waiters.Go(func() {
		err := before.Wait(s.ctx)
		if err == nil {
			err = work(s.ctx)
		}
		s.unblock(gate, errors.Join(err, before.Close()))
		for _, span := range spans {
			s.d.releaseMemory(span.Mem)
		}
	})
	return nil
}

// block has later commands wait until unblock.
func (s *stream) block() (gate eventPointer, err error) {
	err = s.begin(func() (eventPointer, error) {
		if gate, err = s.d.api.createUserEvent(s.d.context); err != nil {
			return 0, err
		}
		return s.d.api.barrier(s.queue, gate)
	})
	if err != nil {
		if gate != 0 {
			// A barrier may wait for it already. The caller is told that nothing
			// is going to: it opens, since PoCL 3.1 aborts when an event fails
			// while a command before its barrier ends.
			err = errors.Join(err, s.settle(gate, codeSuccess))
		}
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return gate, errors.Join(s.usable(), s.settle(gate, codeGivenUp))
	}
	s.gates[gate] = struct{}{}
	return gate, nil
}

// unblock lets the commands behind a gate go on, or has them fail. Only the
// first call for a gate counts.
func (s *stream) unblock(gate eventPointer, err error) {
	s.mu.Lock()
	_, waits := s.gates[gate]
	delete(s.gates, gate)
	if err != nil && waits && s.failed == nil {
		s.failed = err
	}
	s.mu.Unlock()
	if !waits {
		return
	}
	status := codeSuccess
	if err != nil {
		status = codeGivenUp
	}
	if serr := s.settle(gate, status); serr != nil {
		s.fail(serr)
	}
}

// settle sets a user event, once, and lets go of it.
func (s *stream) settle(gate eventPointer, status Code) error {
	return errors.Join(s.d.api.setUserEvent(gate, status), s.d.api.releaseEvent(gate))
}

// Close has what waits for the host fail, waits for the rest and gives the
// queue back.
func (s *stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	gates := s.gates
	s.gates = nil
	s.mu.Unlock()
	s.cancel()
	var errs []error
	for gate := range gates {
		errs = append(errs, s.settle(gate, codeGivenUp))
	}
	s.waiters.Wait()
	// The commands of a stream that has failed are its user's to know of.
	_ = s.d.api.finish(s.queue)
	s.reap()
	return errors.Join(append(errs, s.d.api.releaseQueue(s.queue))...)
}

// event is a marker in a queue.
type event struct {
	stream *stream
	id     eventPointer
	closed sync.Once
}

// Wait returns once the commands before it are done.
func (e *event) Wait(ctx context.Context) error {
	api := e.stream.d.api
	if status, err := api.status(e.id); err != nil || status <= 0 {
		return e.cause(errors.Join(err, check("command of a stream", min(status, 0))))
	}
	if err := api.retainEvent(e.id); err != nil {
		return err
	}
	happened := make(chan error, 1)
	go func() { happened <- errors.Join(api.waitEvent(e.id), api.releaseEvent(e.id)) }()
	select {
	case err := <-happened:
		return e.cause(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cause adds what the stream knows of a failure.
func (e *event) cause(err error) error {
	if err == nil {
		return nil
	}
	e.stream.mu.Lock()
	defer e.stream.mu.Unlock()
	return errors.Join(e.stream.failed, err)
}

// Close lets go of it.
func (e *event) Close() (err error) {
	e.closed.Do(func() { err = e.stream.d.api.releaseEvent(e.id) })
	return err
}
