package opencl

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// stream is a queue of the device whose commands nobody waits for one by one.
//
// What the host has a part in is a gate: the steps behind one stay here until
// it has opened. A user event could have them wait in the queue; but when one
// fails while a command before its barrier ends, PoCL 3.1 ends the process, and
// only the host knows of a wait that nothing is going to end.
type stream struct {
	d     *device
	queue queueID
	// gates are the goroutines that wait for a gate to open.
	gates  sync.WaitGroup
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // as long as the stream: it ends the gates

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// failed is the first error that is known.
	// +checklocks:mu
	failed error
	// held are the steps that the queue has not been given, in order. The first
	// is a gate, which something waits for.
	// +checklocks:mu
	held []step
	// pending are commands that may not be done, in order.
	// +checklocks:mu
	pending []pending
}

// step is a command or a gate, and the memory that it uses.
type step struct {
	// command puts a command into the queue; nil for a gate.
	command func() (eventPointer, error)
	// marks is the event that the command is, if somebody has asked for it.
	marks *event
	// gate returns when the steps behind it may go on, or fail.
	gate func(ctx context.Context) error
	// after is the event of the device that it waits for.
	after *event
	mems  []*devices.Memory
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
	s := &stream{d: d, queue: q}
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

// HostDriven says that the device orders the work. It is the host that hands it
// on once an event from elsewhere has happened.
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
	if !devices.Aligned(t, dst, src) || s.d.entry.isHost() || s.d.kernelMissing(t, op) {
		return s.byHost(func(ctx context.Context) error { return devices.Reduce(ctx, dst, src, t, op) }, dst, src)
	}
	r := reduction{dst: s.d.place(dst), src: s.d.place(src), t: t, op: op}
	return s.begin(func() (eventPointer, error) {
		event, code, err := s.d.startReduce(s.queue, r, dst.Len)
		if err != nil {
			return 0, err
		}
		return event, check("clEnqueueNDRangeKernel", code)
	}, dst, src)
}

// begin starts a command on spans, or holds it behind a gate.
func (s *stream) begin(command func() (eventPointer, error), spans ...devices.Span) error {
	return s.add(step{command: command}, spans...)
}

// add takes a step, on spans which are checked and held until it is done.
func (s *stream) add(st step, spans ...devices.Span) (err error) {
	taken := false
	defer func() {
		if !taken {
			s.leave(err, st)
		}
	}()
	empty := len(spans) > 0 && st.gate == nil
	for _, span := range spans {
		if err = span.Check(s.d.self); err != nil {
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
	for _, span := range spans {
		span.Mem.Retain()
		st.mems = append(st.mems, span.Mem)
	}
	taken, err = s.takeLocked(st)
	return err
}

// takeLocked has a step begin, or wait for what is before it. taken says that its
// memory is the stream's now.
//
// +checklocks:s.mu
func (s *stream) takeLocked(st step) (taken bool, err error) {
	if st.gate == nil && len(s.held) == 0 {
		return s.startLocked(st)
	}
	s.held = append(s.held, st)
	if len(s.held) == 1 {
		s.awaitLocked()
	}
	return true, nil
}

// startLocked gives the queue a command.
//
// +checklocks:s.mu
func (s *stream) startLocked(st step) (started bool, err error) {
	id, err := st.command()
	if err != nil {
		return false, err
	}
	if st.marks != nil {
		st.marks.put(id)
	} else {
		s.pending = append(s.pending, pending{event: id, mems: st.mems})
	}
	if st.after != nil {
		st.after.drop()
	}
	return true, s.d.api.flush(s.queue)
}

// awaitLocked waits for the gate that all held steps are behind.
//
// +checklocks:s.mu
func (s *stream) awaitLocked() {
	gate := s.held[0].gate
	s.gates.Go(func() { s.opened(gate(s.ctx)) })
}

// opened has the steps behind the first gate go on, as far as the next one, or
// fail.
func (s *stream) opened(err error) {
	leave, gone := s.d.life.Enter(context.Background(), s.d.self)
	if gone == nil {
		defer leave()
	} else if err == nil {
		err = gone
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return // Close has taken what was held
	}
	over := s.held[:1]
	s.held = s.held[1:]
	if s.failed == nil {
		s.failed = err
	}
	for s.failed == nil && len(s.held) > 0 && s.held[0].gate == nil {
		var started bool
		if started, s.failed = s.startLocked(s.held[0]); started {
			s.held = s.held[1:]
		}
	}
	failed := s.failed
	switch {
	case failed != nil:
		over, s.held = append(over[:1:1], s.held...), nil
	case len(s.held) > 0:
		s.awaitLocked()
	}
	s.mu.Unlock()
	s.leave(failed, over...)
	s.reap()
}

// leave lets go of steps that the queue has not been given, and has their events
// fail.
func (s *stream) leave(err error, steps ...step) {
	for _, st := range steps {
		s.release(st.mems)
		if st.marks != nil {
			st.marks.fail(err)
		}
		if st.after != nil {
			st.after.drop()
		}
	}
}

func (s *stream) release(mems []*devices.Memory) {
	for _, m := range mems {
		s.d.releaseMemory(m)
	}
}

// usable says why nothing can be asked for any more.
//
// +checklocks:s.mu
func (s *stream) usable() error {
	if s.closed {
		return s.errClosed()
	}
	return s.failed
}

func (s *stream) errClosed() error {
	return fmt.Errorf("stream of %s: %w", s.d.info.Name, devices.ErrClosed)
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
		s.release(p.mems)
		_ = s.d.api.releaseEvent(p.event) // an event that stays is no harm
	}
}

// Record makes an event behind all commands.
func (s *stream) Record() (devices.Event, error) {
	e := newEvent(s)
	e.keep()
	if err := s.add(step{command: s.marker, marks: e}); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (s *stream) marker() (eventPointer, error) { return s.d.api.marker(s.queue) }

// Sync waits for all commands.
func (s *stream) Sync(ctx context.Context) error {
	e, err := s.Record() //nolint:contextcheck // what is asked for outlives the caller
	if err != nil {
		return err
	}
	err = errors.Join(e.Wait(ctx), e.Close())
	s.reap()
	return err
}

// After has later commands wait: for an event of the device that its queue has
// by itself, for any other behind a gate.
func (s *stream) After(e devices.Event) error {
	own, ok := e.(*event)
	if !ok || own.stream.d != s.d {
		return s.add(step{gate: e.Wait})
	}
	own.keep()
	if own.queued() {
		return s.add(step{after: own, command: func() (eventPointer, error) { return s.d.api.barrier(s.queue, own.id) }})
	}
	return s.add(step{after: own, gate: own.Wait})
}

// byHost has the host do a piece of work between the commands before and behind
// it.
func (s *stream) byHost(work func(context.Context) error, spans ...devices.Span) error {
	return s.add(step{gate: func(ctx context.Context) error {
		before := newEvent(s)
		err := s.recordNow(before)
		if err == nil {
			err = before.Wait(ctx)
		}
		if err = errors.Join(err, before.Close()); err == nil {
			err = work(ctx)
		}
		return err
	}}, spans...)
}

// recordNow puts an event behind what the queue has, whatever is held.
func (s *stream) recordNow(e *event) error {
	id, err := s.marker()
	if err != nil {
		return err
	}
	e.keep()
	e.put(id)
	return s.d.api.flush(s.queue)
}

// Close has what is behind a gate fail, waits for the rest and gives the queue
// back.
func (s *stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	held := s.held
	s.held = nil
	s.mu.Unlock()
	s.cancel()
	s.gates.Wait()
	s.leave(s.errClosed(), held...)
	// The commands of a stream that has failed are its user's to know of.
	_ = s.d.api.finish(s.queue)
	s.reap()
	return s.d.api.releaseQueue(s.queue)
}
