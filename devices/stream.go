package devices

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// Streamer is the ability of a device to keep streams by itself.
type Streamer interface {
	// NewStream makes a stream of the device's own.
	NewStream(ctx context.Context) (Stream, error)
}

// Stream is work on one device that is done in order, each piece after the one
// before, while whoever has asked for it goes on. Two streams have no order but
// that of events: one records, the other waits.
//
// The memory of what a stream has to do is held until it is done. Other
// operations of the device see it once an event that was recorded behind it has
// happened, or Sync has returned. Work that fails has all that comes behind it
// fail, and the events with it.
//
// The methods may be called from any goroutine and do not wait, but for Sync
// and Close.
//
// Errors: those of Device at once, as far as they are known then; ErrClosed
// after Close; the error of work that has failed before.
type Stream interface {
	// Copy, Fill and Reduce are those of the device.
	Copy(dst, src Span) error
	Fill(dst Span, value byte) error
	Reduce(dst, src Span, t elem.Type, op elem.Op) error
	// Record makes an event that happens when all work asked for until now is
	// done.
	Record() (Event, error)
	// After has all that is asked for from now on wait until an event has
	// happened: of this device, of another one, or a Signal. One that fails has
	// the stream fail.
	After(e Event) error
	// Sync waits until all is done, and returns the error of what has failed.
	Sync(ctx context.Context) error
	// HostDriven says that the host starts each piece of work, because the
	// device has no streams or can't wait by itself.
	HostDriven() bool
	// Close gives up what has not begun and waits for the rest. Events that
	// have not happened fail with ErrClosed.
	Close() error
}

// NewStream makes a stream of the device where it can, else one that a
// goroutine of the host drives, by the device's own operations.
func NewStream(ctx context.Context, d Device) (Stream, error) {
	if s, ok := d.(Streamer); ok {
		return s.NewStream(ctx)
	}
	return NewHostStream(ctx, d), nil
}

// hostStream is a stream that a goroutine drives.
type hostStream struct {
	dev    Device
	cancel context.CancelFunc
	ended  chan struct{}
	wake   chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	jobs []job
	// +checklocks:mu
	closed bool
	// failed is the first error of a job.
	// +checklocks:mu
	failed error
}

// job is a piece of work. What is told is called with the state that the stream
// is in then, also when it has failed.
type job struct {
	work func(ctx context.Context) error
	told func(error)
	mems []*Memory
}

// NewHostStream makes a stream of any device, whose work a goroutine of the
// host does piece by piece, until the stream is closed.
func NewHostStream(ctx context.Context, d Device) Stream {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &hostStream{dev: d, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go s.run(ctx)
	return s
}

// HostDriven says that it is.
func (s *hostStream) HostDriven() bool { return true }

// Copy moves bytes inside the device.
func (s *hostStream) Copy(dst, src Span) error {
	if dst.Len != src.Len {
		return fmt.Errorf("copy of %v to %v: %w", src.Range, dst.Range, ErrRange)
	}
	return s.begin(func(ctx context.Context) error { return s.dev.Copy(ctx, dst, src) }, dst, src)
}

// Fill sets bytes.
func (s *hostStream) Fill(dst Span, value byte) error {
	return s.begin(func(ctx context.Context) error { return s.dev.Fill(ctx, dst, value) }, dst)
}

// Reduce combines elements.
func (s *hostStream) Reduce(dst, src Span, t elem.Type, op elem.Op) error {
	if err := CheckReduce(s.dev, dst, src, t, op); err != nil {
		return err
	}
	return s.begin(func(ctx context.Context) error { return Reduce(ctx, dst, src, t, op) }, dst, src)
}

// Record makes an event.
func (s *hostStream) Record() (Event, error) {
	e := NewSignal()
	return e, s.add(job{told: e.Set})
}

// After waits for an event.
func (s *hostStream) After(e Event) error {
	return s.add(job{work: e.Wait})
}

// Sync waits for all that was asked for.
func (s *hostStream) Sync(ctx context.Context) error {
	e, err := s.Record()
	if err != nil {
		return err
	}
	return e.Wait(ctx)
}

// Close gives up what has not begun.
func (s *hostStream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	<-s.ended
	return nil
}

// begin adds work on spans, which are checked and held.
func (s *hostStream) begin(work func(context.Context) error, spans ...Span) error {
	j := job{work: work}
	for _, span := range spans {
		if err := span.Check(s.dev); err != nil {
			return err
		}
	}
	for _, span := range spans {
		span.Mem.Retain()
		j.mems = append(j.mems, span.Mem)
	}
	err := s.add(j)
	if err != nil {
		j.release()
	}
	return err
}

func (s *hostStream) add(j job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return s.errClosed()
	case s.failed != nil:
		return s.failed
	}
	s.jobs = append(s.jobs, j)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

func (s *hostStream) errClosed() error {
	return fmt.Errorf("stream of %s: %w", s.dev.Info().Name, ErrClosed)
}

// run does the jobs until the stream is closed.
func (s *hostStream) run(ctx context.Context) {
	defer close(s.ended)
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.fail(s.errClosed())
		}
		for {
			j, ok := s.next()
			if !ok {
				break
			}
			s.do(ctx, j)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *hostStream) next() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		s.jobs = nil
		return job{}, false
	}
	j := s.jobs[0]
	s.jobs = s.jobs[1:]
	return j, true
}

// do does a job, unless one before it has failed.
func (s *hostStream) do(ctx context.Context, j job) {
	defer j.release()
	if ctx.Err() != nil {
		s.fail(s.errClosed())
	}
	err := s.failure()
	if err == nil && j.work != nil {
		if err = j.work(ctx); err != nil {
			if ctx.Err() != nil {
				err = s.errClosed()
			}
			s.fail(err)
		}
	}
	if j.told != nil {
		j.told(err)
	}
}

func (s *hostStream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// fail keeps the first error.
func (s *hostStream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

// release gives the memory back that the job held. An error is the device's,
// which has the memory no longer.
func (j job) release() {
	for _, m := range j.mems {
		_ = m.Release()
	}
}
