package streams

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
)

// Event is a point in a stream's work.
type Event struct {
	// ID is the library's event once recorded is set.
	ID     ID
	stream *Stream
	// recorded is set once the event is in its stream, or with the error because of which it
	// never will be.
	recorded *devices.Signal
	// users counts the users of the library's event: the caller of Record, the job that
	// records it, and all jobs that wait for it.
	users  atomic.Int32
	closed func()
}

var _ devices.Keeper = (*Event)(nil)

// newEvent returns an event that the caller closes.
func (s *Stream) newEvent() *Event {
	e := &Event{stream: s, recorded: devices.NewSignal()}
	e.closed = e.Keep()
	return e
}

// Keep adds a user until release is called. Except for the first call, the caller must
// itself be a user.
func (e *Event) Keep() (release func()) {
	e.users.Add(1)
	return sync.OnceFunc(func() {
		if e.users.Add(-1) == 0 && e.ID != 0 {
			e.stream.calls.Drop(e.ID)
		}
	})
}

// Close ends the caller's use of the event. Streams that wait for it still do.
func (e *Event) Close() error {
	e.closed()
	return nil
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
	if err := e.recorded.Wait(ctx); err != nil {
		return err
	}
	return e.stream.calls.Wait(ctx, e)
}

// Cause joins the failure of the event's stream with err, which is not nil.
func (e *Event) Cause(err error) error { return errors.Join(e.stream.queue.Failure(), err) }
