package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// stream is a stream of the card. A goroutine submits work to it, and waits only for events
// that the card can't wait for: a Signal of the host, an event of another device.
type stream struct {
	d     *device
	id    cuStream
	queue *devices.Queue
	once  sync.Once

	mu sync.Mutex
	// pending is work that may not be done yet, in order.
	// +checklocks:mu
	pending []pending
}

// pending is memory that is in use until an event has happened.
type pending struct {
	event cuEvent
	mems  []*devices.Memory
}

// hasStreams reports whether the library has all functions that streams need.
func (a *api) hasStreams() bool {
	return a.EventCreate.Present() && a.EventDestroy.Present() && a.EventRecord.Present() &&
		a.EventQuery.Present() && a.StreamWaitEvent.Present()
}

// NewStream returns a stream that is not synchronized with any other.
func (d *device) NewStream(ctx context.Context) (devices.Stream, error) {
	leave, err := d.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if !d.api.hasStreams() {
		return devices.NewHostStream(ctx, d), nil
	}
	s := &stream{d: d}
	err = d.On(func() (err error) {
		s.id, err = d.api.createStream()
		return err
	})
	if err != nil {
		return nil, err
	}
	s.queue = devices.NewQueue(ctx, d)
	return s, nil
}

// HostDriven returns false: the card orders the work, although the host submits work that
// waits for a Signal only once that is set.
func (s *stream) HostDriven() bool { return false }

// Copy submits a copy within the card.
func (s *stream) Copy(dst, src devices.Span) error {
	if dst.Len != src.Len {
		return fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, s.d.Info().Name, devices.ErrRange)
	}
	if dst.Mem == src.Mem && dst.Overlaps(src.Range) {
		return s.byHost(func(ctx context.Context) error { return s.d.Copy(ctx, dst, src) }, dst, src)
	}
	return s.begin(func() error { return s.d.api.copyWithin(s.id, card.AddressOf(dst), card.AddressOf(src), src.Len) }, dst, src)
}

// Fill submits setting bytes.
func (s *stream) Fill(dst devices.Span, value byte) error {
	return s.begin(func() error { return s.d.api.fill(s.id, card.AddressOf(dst), value, dst.Len) }, dst)
}

// Reduce submits a combination of elements: by a kernel, or by the host if the driver has
// no kernel.
func (s *stream) Reduce(dst, src devices.Span, t elem.Type, op elem.Op) error {
	if err := devices.CheckReduce(s.d, dst, src, t, op); err != nil {
		return err
	}
	if !devices.Aligned(t, dst, src) || s.kernelMissing(t, op) {
		return s.byHost(func(ctx context.Context) error { return devices.Reduce(ctx, dst, src, t, op) }, dst, src)
	}
	return s.begin(func() error {
		f, err := s.d.kernel(t, op)
		if err != nil {
			return err
		}
		return s.d.api.reduce(s.id, f, card.AddressOf(dst), card.AddressOf(src), dst.Len/devices.Size(t.Size()))
	}, dst, src)
}

// kernelMissing reports whether the driver has rejected a kernel. Any other error is
// reported when the work starts.
func (s *stream) kernelMissing(t elem.Type, op elem.Op) bool {
	leave, err := s.d.Enter(context.Background())
	if err != nil {
		return false
	}
	defer leave()
	err = s.d.On(func() (err error) {
		_, err = s.d.kernel(t, op)
		return err
	})
	return errors.Is(err, devices.ErrUnsupported)
}

// begin submits work to the stream and holds its memory until it is done.
func (s *stream) begin(start func() error, spans ...devices.Span) error {
	if err := s.queue.Failure(); err != nil && !errors.Is(err, devices.ErrClosed) {
		return err
	}
	return s.queue.Begin(func(ctx context.Context) error {
		if spans[0].Len == 0 {
			return nil
		}
		leave, err := s.d.Enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		defer s.reap()
		return s.d.On(func() error {
			event, err := s.d.api.createEvent()
			if err != nil {
				return err
			}
			if err = start(); err == nil {
				err = s.d.api.recordEvent(event, s.id)
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
		})
	}, spans...)
}

// byHost has the host do work after the work in the stream and before later work.
func (s *stream) byHost(work func(context.Context) error, spans ...devices.Span) error {
	return s.queue.ByHost(s.recordNow, work, spans...)
}

// recordNow records an event after the work submitted to the stream so far.
func (s *stream) recordNow(ctx context.Context) (devices.Event, error) {
	e := newEvent(s)
	if err := e.record(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.Recorded.Set(nil)
	return e, nil
}

// reap releases the memory of completed work, or of all work once the card has failed. The
// caller must have entered the card.
func (s *stream) reap() {
	failed := s.d.Failed() != nil
	s.mu.Lock()
	n := 0
	for n < len(s.pending) && !failed {
		done, err := s.query(s.pending[n].event)
		if err == nil && !done {
			break
		}
		if err != nil {
			s.queue.Fail(err)
		}
		n++
	}
	if failed {
		n = len(s.pending)
	}
	done := s.pending[:n:n]
	s.pending = s.pending[n:]
	s.mu.Unlock()
	for _, p := range done {
		s.destroy(p.event)
		for _, m := range p.mems {
			_ = m.Release() // the device has reported its errors already
		}
	}
}

// query reports whether an event has happened.
func (s *stream) query(e cuEvent) (done bool, err error) {
	err = s.d.On(func() (err error) {
		done, err = s.d.api.happened(e)
		return err
	})
	return done, err
}

// destroy destroys an event; that of a failed card is freed with the process.
func (s *stream) destroy(e cuEvent) {
	_ = s.d.On(func() error { return s.d.api.destroyEvent(e) })
}

// Record returns an event for all work so far.
func (s *stream) Record() (devices.Event, error) {
	e := newEvent(s)
	err := s.queue.Add(devices.Job{Work: e.record, Done: e.Recorded.Set, Event: e})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// After makes later work wait: on the card for an event of any card, on the host for other
// events.
func (s *stream) After(e devices.Event) error {
	own, ok := e.(*event)
	if !ok {
		return s.queue.Add(devices.Job{Work: e.Wait, Event: e})
	}
	return s.queue.Add(devices.Job{Event: e, Work: func(ctx context.Context) error {
		if err := own.Recorded.Wait(ctx); err != nil {
			return err
		}
		leave, err := s.d.Enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		return s.d.On(func() error { return s.d.api.streamAfter(s.id, own.id) })
	}})
}

// Sync waits for all work so far.
func (s *stream) Sync(ctx context.Context) error {
	e, err := s.Record()
	if err != nil {
		return err
	}
	err = errors.Join(e.Wait(ctx), e.Close())
	if leave, gone := s.d.Enter(context.WithoutCancel(ctx)); gone == nil {
		s.reap()
		leave()
	}
	return err
}

// Close cancels the work that was not submitted to the card, waits for the rest and
// destroys the stream.
func (s *stream) Close() (err error) {
	s.once.Do(func() {
		s.queue.Close()
		leave, gone := s.d.Enter(context.Background())
		if gone != nil {
			return // freed with the device
		}
		defer leave()
		err = s.d.On(func() error { return s.d.api.synchronize(s.id) })
		s.reap()
		if s.d.Failed() == nil {
			err = errors.Join(err, s.d.On(func() error { return s.d.api.destroyStream(s.id) }))
		}
	})
	return err
}
