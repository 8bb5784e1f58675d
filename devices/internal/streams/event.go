package streams

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
)

// Event is a point in a stream's work.
type Event struct {
	devices.Mark
	// ID is the library's event once Mark.Recorded is set.
	ID     ID
	stream *Stream
}

// newEvent returns an event that the caller closes.
func (s *Stream) newEvent() *Event {
	e := &Event{stream: s}
	e.Open(func() {
		if e.ID != 0 {
			s.calls.Drop(e.ID)
		}
	})
	return e
}

// record submits it to the stream.
func (e *Event) record(ctx context.Context) error {
	leave, err := e.stream.calls.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	e.ID, err = e.stream.calls.Record()
	return err
}

// Wait returns once the work before it is done.
func (e *Event) Wait(ctx context.Context) error {
	if err := e.Recorded.Wait(ctx); err != nil {
		return err
	}
	return e.stream.calls.Wait(ctx, e)
}

// Cause joins the failure of the event's stream with err, which is not nil.
func (e *Event) Cause(err error) error { return errors.Join(e.stream.queue.Failure(), err) }
