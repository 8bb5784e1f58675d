package opencl

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// stream is a queue of the device whose commands are not waited for individually. A
// goroutine of the host submits them, and waits only for events that the device can't wait
// for: a Signal, an event of another device, work of the host.
//
// A user event could make the queue wait for those. But if one fails while a command before
// its barrier completes, PoCL 3.1 terminates the process.
type stream struct {
	d     *device
	id    queueID
	queue *devices.Queue
	once  sync.Once

	mu sync.Mutex
	// pending are commands that may not be complete, in order.
	// +checklocks:mu
	pending []pending
}

// pending is a command and the memory that it uses.
type pending struct {
	event eventPointer
	mems  []*devices.Memory
}

// NewStream returns a stream with a queue of its own.
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
	return &stream{d: d, id: q, queue: devices.NewQueue(ctx, d.self)}, nil
}

// NewStream returns a stream that the host drives: a command may start only once no host
// user is left, which a queue can't wait for (H2).
func (d *mappedDevice) NewStream(ctx context.Context) (devices.Stream, error) {
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	return devices.NewHostStream(ctx, d.self), nil
}

// HostDriven returns false: the device orders the work, although the host submits work that
// waits for an external event only once that has happened.
func (s *stream) HostDriven() bool { return false }

// Copy submits a copy within the device.
func (s *stream) Copy(dst, src devices.Span) error {
	if dst.Len != src.Len {
		return fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, s.d.info.Name, devices.ErrRange)
	}
	if dst.Mem == src.Mem && dst.Overlaps(src.Range) {
		return s.byHost(func(ctx context.Context) error { return s.d.Copy(ctx, dst, src) }, dst, src)
	}
	return s.begin(func() (eventPointer, error) {
		return s.d.api.startCopy(s.id, s.d.place(dst), s.d.place(src), uint64(src.Len))
	}, dst, src)
}

// Fill submits setting bytes.
func (s *stream) Fill(dst devices.Span, value byte) error {
	return s.begin(func() (eventPointer, error) {
		return s.d.api.startFill(s.id, s.d.place(dst), uint64(dst.Len), value)
	}, dst)
}

// Reduce submits a combination of elements: by a kernel, or by the host if the device has
// no kernel.
func (s *stream) Reduce(dst, src devices.Span, t elem.Type, op elem.Op) error {
	if err := devices.CheckReduce(s.d.self, dst, src, t, op); err != nil {
		return err
	}
	if !devices.Aligned(t, dst, src) || s.d.entry.isHost() || s.d.kernelMissing(t, op) {
		return s.byHost(func(ctx context.Context) error { return devices.Reduce(ctx, dst, src, t, op) }, dst, src)
	}
	r := reduction{dst: s.d.place(dst), src: s.d.place(src), t: t, op: op}
	return s.begin(func() (eventPointer, error) {
		event, code, err := s.d.startReduce(s.id, r, dst.Len)
		if err != nil {
			return 0, err
		}
		return event, check("clEnqueueNDRangeKernel", code)
	}, dst, src)
}

// begin queues a command for submission and holds its memory until it is complete.
func (s *stream) begin(command func() (eventPointer, error), spans ...devices.Span) error {
	leave, err := s.d.life.Enter(context.Background(), s.d.self)
	if err != nil {
		return err
	}
	defer leave()
	return s.queue.Begin(func(ctx context.Context) error {
		if spans[0].Len == 0 {
			return nil
		}
		return s.put(ctx, command, spans)
	}, spans...)
}

// put submits a command to the queue, and makes the device start it.
func (s *stream) put(ctx context.Context, command func() (eventPointer, error), spans []devices.Span) error {
	leave, err := s.d.life.Enter(ctx, s.d.self)
	if err != nil {
		return err
	}
	defer leave()
	defer s.reap()
	event, err := command()
	if err != nil {
		return err
	}
	p := pending{event: event}
	for _, span := range spans {
		span.Mem.Retain()
		p.mems = append(p.mems, span.Mem)
	}
	s.mu.Lock()
	s.pending = append(s.pending, p)
	s.mu.Unlock()
	return s.d.api.flush(s.id)
}

// reap releases the memory and events of completed commands.
func (s *stream) reap() {
	s.mu.Lock()
	var done []pending
	for len(s.pending) > 0 {
		status, err := s.d.api.status(s.pending[0].event)
		if err == nil && status > 0 {
			break
		}
		if err = errors.Join(err, check("command of a stream", min(status, 0))); err != nil {
			s.queue.Fail(err)
		}
		done = append(done, s.pending[0])
		s.pending = s.pending[1:]
	}
	s.mu.Unlock()
	for _, p := range done {
		for _, m := range p.mems {
			s.d.releaseMemory(m)
		}
		_ = s.d.api.releaseEvent(p.event) // a leaked event is harmless
	}
}

// Record returns an event for all commands so far.
func (s *stream) Record() (devices.Event, error) {
	e := newEvent(s)
	err := s.queue.Add(devices.Job{Work: e.record, Done: e.Recorded.Set, Event: e})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Sync waits for all commands so far.
func (s *stream) Sync(ctx context.Context) error {
	e, err := s.Record()
	if err != nil {
		return err
	}
	err = errors.Join(e.Wait(ctx), e.Close())
	s.reap()
	return err
}

// After makes later commands wait: on the device for an event of its own, on the host for
// other events.
func (s *stream) After(e devices.Event) error {
	own, ok := e.(*event)
	if !ok || own.stream.d != s.d {
		return s.queue.Add(devices.Job{Work: e.Wait, Event: e})
	}
	return s.queue.Add(devices.Job{Event: e, Work: func(ctx context.Context) error {
		if err := own.Recorded.Wait(ctx); err != nil {
			return err
		}
		return s.put(ctx, func() (eventPointer, error) { return s.d.api.barrier(s.id, own.id) }, nil)
	}})
}

// byHost has the host do a piece of work between the commands before it and those after it.
func (s *stream) byHost(work func(context.Context) error, spans ...devices.Span) error {
	return s.queue.ByHost(s.recordNow, work, spans...)
}

// recordNow records an event after the commands submitted so far.
func (s *stream) recordNow(ctx context.Context) (devices.Event, error) {
	e := newEvent(s)
	if err := e.record(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.Recorded.Set(nil)
	return e, nil
}

// Close cancels the work that was not submitted to the queue, waits for the rest and
// releases the queue.
func (s *stream) Close() (err error) {
	s.once.Do(func() {
		s.queue.Close()
		// Errors of the stream's commands have been reported to its user.
		_ = s.d.api.finish(s.id)
		s.reap()
		err = s.d.api.releaseQueue(s.id)
	})
	return err
}
