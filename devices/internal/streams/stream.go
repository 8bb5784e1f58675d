package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// ID identifies an event of a device's library; 0 is none.
type ID = uintptr

// Calls are the calls of a family for one stream. The device has been entered for all of
// them that do not say otherwise.
type Calls struct {
	// Device is the device as its users know it.
	Device devices.Device
	// Domain is equal for streams that wait for each other's events on the device.
	Domain any
	// Enter starts an operation on the device, and leave ends it. It is called without the
	// device being entered, as are HostReduces, Wait, Drop and Close.
	Enter func(ctx context.Context) (leave func(), err error)

	// Copy, Fill and Reduce start work on checked spans and return an event that happens
	// when it is done. If an event and an error are returned, the work may be running.
	Copy   func(dst, src devices.Span) (ID, error)
	Fill   func(dst devices.Span, value byte) (ID, error)
	Reduce func(dst, src devices.Span, t elem.Type, op elem.Op) (ID, error)
	// HostReduces reports whether the host has to combine the elements.
	HostReduces func(t elem.Type, op elem.Op) bool

	// Record returns an event that happens when all work so far is done.
	Record func() (ID, error)
	// After makes later work wait for an event. It returns an event of its own, or 0.
	After func(ID) (ID, error)
	// Done reports whether an event has happened, or the error of the work before it.
	Done func(ID) (bool, error)
	// Wait returns once an event, which is recorded, has happened.
	Wait func(ctx context.Context, e *Event) error
	// Free and Drop free an event.
	Free, Drop func(ID)

	// Release releases memory that was held for work.
	Release func(*devices.Memory)
	// Close waits for the work, calls reap and destroys the stream. If the device is closed
	// already and its streams with it, it does nothing.
	Close func(reap func()) error
}

// Stream is a stream that the device executes.
type Stream struct {
	calls Calls
	queue *devices.Queue
	once  sync.Once

	mu sync.Mutex
	// pending is work that may not be done yet, in order.
	// +checklocks:mu
	pending []pending
}

// pending is memory that is in use until an event has happened.
type pending struct {
	event ID
	mems  []*devices.Memory
}

// New returns a stream.
func New(ctx context.Context, c Calls) *Stream {
	return &Stream{calls: c, queue: devices.NewQueue(ctx, c.Device)}
}

// HostDriven returns false: the device orders the work, although the host submits work that
// waits for an external event only once that has happened.
func (s *Stream) HostDriven() bool { return false }

// Copy submits a copy within the device.
func (s *Stream) Copy(dst, src devices.Span) error {
	if dst.Len != src.Len {
		return fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, s.calls.Device.Info().Name, devices.ErrRange)
	}
	if dst.Mem == src.Mem && dst.Overlaps(src.Range) {
		return s.byHost(func(ctx context.Context) error { return s.calls.Device.Copy(ctx, dst, src) }, dst, src)
	}
	return s.begin(func() (ID, error) { return s.calls.Copy(dst, src) }, dst, src)
}

// Fill submits setting bytes.
func (s *Stream) Fill(dst devices.Span, value byte) error {
	return s.begin(func() (ID, error) { return s.calls.Fill(dst, value) }, dst)
}

// Reduce submits a combination of elements: by a kernel, or by the host if the device has
// no kernel.
func (s *Stream) Reduce(dst, src devices.Span, t elem.Type, op elem.Op) error {
	if err := devices.CheckReduce(s.calls.Device, dst, src, t, op); err != nil {
		return err
	}
	if !devices.Aligned(t, dst, src) || s.calls.HostReduces(t, op) {
		return s.byHost(func(ctx context.Context) error { return devices.Reduce(ctx, dst, src, t, op) }, dst, src)
	}
	return s.begin(func() (ID, error) { return s.calls.Reduce(dst, src, t, op) }, dst, src)
}

// begin queues work for submission and holds its memory until it is done.
func (s *Stream) begin(start func() (ID, error), spans ...devices.Span) error {
	leave, err := s.calls.Enter(context.Background())
	if err != nil {
		return err
	}
	defer leave()
	if err = s.queue.Failure(); err != nil && !errors.Is(err, devices.ErrClosed) {
		return err
	}
	return s.queue.Begin(func(ctx context.Context) error {
		if spans[0].Len == 0 {
			return nil
		}
		return s.put(ctx, start, spans)
	}, spans...)
}

// put submits work to the device, and holds its memory.
func (s *Stream) put(ctx context.Context, start func() (ID, error), spans []devices.Span) error {
	leave, err := s.calls.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	defer s.reap()
	event, err := start()
	if event == 0 {
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
	return err
}

// reap releases the memory and events of work that is done.
func (s *Stream) reap() {
	s.mu.Lock()
	n := 0
	for ; n < len(s.pending); n++ {
		done, err := s.calls.Done(s.pending[n].event)
		if err != nil {
			s.queue.Fail(err)
		} else if !done {
			break
		}
	}
	done := s.pending[:n:n]
	s.pending = s.pending[n:]
	s.mu.Unlock()
	for _, p := range done {
		s.calls.Free(p.event)
		for _, m := range p.mems {
			s.calls.Release(m)
		}
	}
}

// byHost has the host do work after the work in the stream and before later work.
func (s *Stream) byHost(work func(context.Context) error, spans ...devices.Span) error {
	return s.queue.Begin(func(ctx context.Context) error {
		before := s.newEvent()
		err := before.record(ctx)
		before.recorded.Set(err)
		if err = errors.Join(before.Wait(ctx), before.Close()); err != nil {
			return err
		}
		return work(ctx)
	}, spans...)
}

// Record returns an event for all work so far.
func (s *Stream) Record() (devices.Event, error) {
	e := s.newEvent()
	err := s.queue.Add(devices.Job{Work: e.record, Done: e.recorded.Set, Event: e})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// After makes later work wait: on the device for an event of its domain, on the host for
// other events.
func (s *Stream) After(e devices.Event) error {
	own, ok := e.(*Event)
	if !ok || own.stream.calls.Domain != s.calls.Domain {
		return s.queue.Add(devices.Job{Work: e.Wait, Event: e})
	}
	return s.queue.Add(devices.Job{Event: e, Work: func(ctx context.Context) error {
		if err := own.recorded.Wait(ctx); err != nil {
			return err
		}
		return s.put(ctx, func() (ID, error) { return s.calls.After(own.ID) }, nil)
	}})
}

// Sync waits for all work so far.
func (s *Stream) Sync(ctx context.Context) error {
	e, err := s.Record()
	if err != nil {
		return err
	}
	err = errors.Join(e.Wait(ctx), e.Close())
	if leave, gone := s.calls.Enter(context.WithoutCancel(ctx)); gone == nil {
		s.reap()
		leave()
	}
	return err
}

// Close cancels the work that was not submitted to the device, waits for the rest and
// destroys the stream.
func (s *Stream) Close() (err error) {
	s.once.Do(func() {
		s.queue.Close()
		err = s.calls.Close(s.reap)
	})
	return err
}
