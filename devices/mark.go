package devices

import (
	"context"
	"errors"
)

// Mark is the host's part of an event on a device: the count of its users, and whether it
// is in its stream yet. Implementations of Stream embed it.
type Mark struct {
	// Refs counts the users of the device's event: the caller of Record, the job that
	// records it, and all jobs that wait for it.
	Refs
	// Recorded is set once the event is in its stream, or with the error because of which
	// it never will be.
	Recorded *Signal

	closed func()
}

// Open initializes the mark of an event that the caller closes. free releases the device's
// event once it has no users left.
func (m *Mark) Open(free func()) {
	m.Recorded, m.Free = NewSignal(), free
	m.closed = m.Keep()
}

// Close ends the caller's use of the event. Streams that wait for it still do.
func (m *Mark) Close() error {
	m.closed()
	return nil
}

// ByHost adds work to be done by the host, on spans as in Begin, after all work that the
// queue has submitted to the device: record creates an event after that work.
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
