package cuda

import (
	"context"
	"errors"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/internal/streams"
)

// stream contains the calls of streams.Calls for a stream of the card. One stream waits for
// the events of another on any card.
type stream struct {
	d  *device
	id cuStream
}

// hasStreams reports whether the library has all functions that streams need.
func (a *api) hasStreams() bool {
	return dl.AllPresent(a.EventCreate, a.EventDestroy, a.EventRecord, a.EventQuery, a.StreamWaitEvent)
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
	return streams.New(ctx, streams.Calls{
		Device: d, Domain: d.api, Enter: d.Enter,
		Copy: s.copy, Fill: s.fill, Reduce: s.reduce, HostReduces: d.kernelMissing,
		Record: s.record, After: s.after, Done: s.done, Wait: s.wait, Free: s.free, Drop: s.drop,
		// The device has reported errors of releasing memory already.
		Release: func(m *devices.Memory) { _ = m.Release() },
		Close:   s.close,
	}), nil
}

// submit starts work and records an event after it.
func (s *stream) submit(start func() error) (event streams.ID, err error) {
	a := s.d.api
	err = s.d.On(func() (err error) {
		e, err := ask[streams.ID](a, "cuEventCreate", a.EventCreate, cuEventDisableTiming)
		if err != nil {
			return err
		}
		event = e
		if err = start(); err != nil {
			return err
		}
		return a.check("cuEventRecord", code(a.EventRecord.Call(event, uintptr(s.id))))
	})
	return event, err
}

func (s *stream) record() (streams.ID, error) { return s.submit(func() error { return nil }) }

func (s *stream) copy(dst, src devices.Span) (streams.ID, error) {
	return s.submit(func() error { return s.d.api.copyWithin(s.id, card.AddressOf(dst), card.AddressOf(src), src.Len) })
}

func (s *stream) fill(dst devices.Span, value byte) (streams.ID, error) {
	return s.submit(func() error { return s.d.api.fill(s.id, card.AddressOf(dst), value, dst.Len) })
}

func (s *stream) reduce(dst, src devices.Span, t elem.Type, op elem.Op) (streams.ID, error) {
	return s.submit(func() error {
		f, err := s.d.kernel(t, op)
		if err != nil {
			return err
		}
		return s.d.api.reduce(s.id, f, card.AddressOf(dst), card.AddressOf(src), dst.Len/devices.Size(t.Size()))
	})
}

// kernelMissing reports whether the driver has rejected a kernel. Any other error is
// reported when the work starts.
func (d *device) kernelMissing(t elem.Type, op elem.Op) bool {
	leave, err := d.Enter(context.Background())
	if err != nil {
		return false
	}
	defer leave()
	err = d.On(func() (err error) {
		_, err = d.kernel(t, op)
		return err
	})
	return errors.Is(err, devices.ErrUnsupported)
}

func (s *stream) after(e streams.ID) (streams.ID, error) {
	a := s.d.api
	return 0, s.d.On(func() error { return a.check("cuStreamWaitEvent", code(a.StreamWaitEvent.Call(uintptr(s.id), e, 0))) })
}

// done reports whether an event has happened; all work of a failed card is done.
func (s *stream) done(e streams.ID) (done bool, err error) {
	if s.d.Failed() != nil {
		return true, nil
	}
	return s.query(e)
}

// query reports whether an event has happened.
func (s *stream) query(e streams.ID) (done bool, err error) {
	err = s.d.On(func() error {
		c := code(s.d.api.EventQuery.Call(e))
		if done = c != codeNotReady; !done {
			return nil
		}
		return s.d.api.check("cuEventQuery", c)
	})
	return done, err
}

// The first and the longest pause between two queries of an event.
const (
	shortPause = 5 * time.Microsecond
	longPause  = 500 * time.Microsecond
)

// wait queries an event until it has happened.
func (s *stream) wait(ctx context.Context, e *streams.Event) error {
	release := e.Keep()
	defer release()
	timer := time.NewTimer(shortPause)
	defer timer.Stop()
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		if done, err := s.look(ctx, e.ID); done || err != nil {
			return err
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look enters the device and reports whether an event has happened.
func (s *stream) look(ctx context.Context, e streams.ID) (bool, error) {
	leave, err := s.d.Enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	return s.query(e)
}

// free destroys an event; that of a failed card is freed with the process.
func (s *stream) free(e streams.ID) {
	_ = s.d.On(func() error { return s.d.api.check("cuEventDestroy", code(s.d.api.EventDestroy.Call(e))) })
}

// drop destroys an event, unless that was freed with the closed device.
func (s *stream) drop(e streams.ID) {
	leave, gone := s.d.Enter(context.Background())
	if gone != nil {
		return
	}
	defer leave()
	s.free(e)
}

func (s *stream) close(reap func()) error {
	leave, gone := s.d.Enter(context.Background())
	if gone != nil {
		return nil // freed with the device
	}
	defer leave()
	err := s.d.On(func() error { return s.d.api.synchronize(s.id) })
	reap()
	if s.d.Failed() == nil {
		err = errors.Join(err, s.d.On(func() error { return s.d.api.destroyStream(s.id) }))
	}
	return err
}
