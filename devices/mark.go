package devices

import (
	"context"
	"errors"
)

// Mark is the host's part of an event that a device keeps: who needs it, and
// whether it is in its stream. Implementations of Stream embed it.
type Mark struct {
	// Refs counts who needs the device's event: who has recorded it, the job that
	// does so, and all that wait for it.
	Refs
	// Recorded is set once the event is in its stream, or with the reason why it
	// never will be.
	Recorded *Signal

	closed func()
}

// Open makes the mark of an event that the caller closes. free gives up what the
// device keeps of it, once nobody needs that.
func (m *Mark) Open(free func()) {
	m.Recorded, m.Free = NewSignal(), free
	m.closed = m.Keep()
}

// Close lets go of the event. Streams that wait for it go on to.
func (m *Mark) Close() error {
	m.closed()
	return nil
}

// ByHost adds work of the host, on spans as Begin, that follows what the queue
// has given to the device: record makes an event behind that.
func (q *Queue) ByHost(record func(context.Context) (Event, error), work func(context.Context) error, spans ...Span) error {
	return q.Begin(func(ctx context.Context) error {
		before, err := record(ctx)
		if err != nil {
			return err
		}
		if err = errors.Join(before.Wait(ctx), before.Close()); err != nil {
			return err
		}
		return work(ctx)
	}, spans...)
}
