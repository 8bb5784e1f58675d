package devices

import (
	"context"
	"fmt"

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
	dev   Device
	queue *Queue
}

// NewHostStream makes a stream of any device, whose work a goroutine of the
// host does piece by piece, until the stream is closed.
func NewHostStream(ctx context.Context, d Device) Stream {
	return &hostStream{dev: d, queue: NewQueue(ctx, d)}
}

// HostDriven says that it is.
func (s *hostStream) HostDriven() bool { return true }

// Copy moves bytes inside the device.
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

// Record makes an event.
func (s *hostStream) Record() (Event, error) {
	e := NewSignal()
	return e, s.queue.Add(Job{Told: e.Set})
}

// After waits for an event.
func (s *hostStream) After(e Event) error { return s.queue.Add(Job{Work: e.Wait, Event: e}) }

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
	s.queue.Close()
	return nil
}
