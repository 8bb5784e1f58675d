package devices

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// Streamer is the ability of a device to execute streams itself.
type Streamer interface {
	// NewStream returns a stream executed by the device.
	NewStream(ctx context.Context) (Stream, error)
}

// Stream is a sequence of work on one device that is executed in order, each piece after
// the previous one, while the caller continues. Two streams are ordered only by events: one
// records, the other waits.
//
// The memory used by a stream's work is held until the work is done. Other operations of
// the device see its results once an event recorded after it has happened, or Sync has
// returned. If work fails, all later work and events fail too.
//
// The methods are safe for concurrent use and do not wait, except Sync and Close.
//
// Errors: those of Device, immediately as far as they can be detected then; ErrClosed after
// Close; the error of earlier work that has failed.
type Stream interface {
	// Copy, Fill and Reduce are like those of the device.
	Copy(dst, src Span) error
	Fill(dst Span, value byte) error
	Reduce(dst, src Span, t elem.Type, op elem.Op) error
	// Record returns an event that happens when all work submitted so far is done.
	Record() (Event, error)
	// After makes all work submitted from now on wait until an event has happened: one of
	// this device, of another one, or a Signal. If it fails, the stream fails.
	After(e Event) error
	// Sync waits until all work is done, and returns the error of work that has failed.
	Sync(ctx context.Context) error
	// HostDriven reports whether the host starts each piece of work, because the device has
	// no streams or can't wait itself.
	HostDriven() bool
	// Close cancels work that has not started and waits for the rest. Events that have not
	// happened fail with ErrClosed.
	Close() error
}

// NewStream returns a stream of the device if it has streams, otherwise one that a
// goroutine of the host drives with the device's operations.
func NewStream(ctx context.Context, d Device) (Stream, error) {
	if s, ok := d.(Streamer); ok {
		return s.NewStream(ctx)
	}
	return NewHostStream(ctx, d), nil
}

// hostStream is a stream driven by a goroutine.
type hostStream struct {
	dev   Device
	queue *Queue
}

// NewHostStream returns a stream for any device. A goroutine of the host executes its work
// piece by piece until the stream is closed.
func NewHostStream(ctx context.Context, d Device) Stream {
	return &hostStream{dev: d, queue: NewQueue(ctx, d)}
}

// HostDriven returns true.
func (s *hostStream) HostDriven() bool { return true }

// Copy copies bytes within the device.
func (s *hostStream) Copy(dst, src Span) error {
	if dst.Len != src.Len {
		return fmt.Errorf("copy of %v to %v: %w", src.Range, dst.Range, ErrRange)
	}
	return s.queue.Begin(func(ctx context.Context) error { return s.dev.Copy(ctx, dst, src) }, dst, src)
}

// Fill sets bytes.
func (s *hostStream) Fill(dst Span, value byte) error {
	return s.queue.Begin(func(ctx context.Context) error { return s.dev.Fill(ctx, dst, value) }, dst)
}

// Reduce combines elements.
func (s *hostStream) Reduce(dst, src Span, t elem.Type, op elem.Op) error {
	if err := CheckReduce(s.dev, dst, src, t, op); err != nil {
		return err
	}
	return s.queue.Begin(func(ctx context.Context) error { return Reduce(ctx, dst, src, t, op) }, dst, src)
}

// Record returns an event for all work submitted so far.
func (s *hostStream) Record() (Event, error) {
	e := NewSignal()
	return e, s.queue.Add(Job{Done: e.Set})
}

// After makes later work wait for an event.
func (s *hostStream) After(e Event) error { return s.queue.Add(Job{Work: e.Wait, Event: e}) }

// Sync waits for all work submitted so far.
func (s *hostStream) Sync(ctx context.Context) error {
	e, err := s.Record()
	if err != nil {
		return err
	}
	return e.Wait(ctx)
}

// Close cancels the work that has not started.
func (s *hostStream) Close() error {
	s.queue.Close()
	return nil
}
