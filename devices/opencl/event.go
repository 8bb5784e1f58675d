package opencl

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
)

// event is a marker in a stream's queue.
type event struct {
	devices.Mark
	stream *stream
	id     eventPointer
}

// newEvent returns an event that the caller closes.
func newEvent(s *stream) *event {
	e := &event{stream: s}
	e.Open(func() {
		if e.id != 0 {
			_ = s.d.api.releaseEvent(e.id) // a leaked event is harmless
		}
	})
	return e
}

// record submits the marker to the queue.
func (e *event) record(ctx context.Context) error {
	s := e.stream
	leave, err := s.d.life.Enter(ctx, s.d.self)
	if err != nil {
		return err
	}
	defer leave()
	if e.id, err = s.d.api.marker(s.id); err != nil {
		return err
	}
	return s.d.api.flush(s.id)
}

// Wait returns once the commands before it are done.
func (e *event) Wait(ctx context.Context) error {
	if err := e.Recorded.Wait(ctx); err != nil {
		return err
	}
	api := e.stream.d.api
	if status, err := api.status(e.id); err != nil || status <= 0 {
		return e.cause(errors.Join(err, check("command of a stream", min(status, 0))))
	}
	happened := make(chan error, 1)
	release := e.Keep()
	go func() {
		defer release()
		happened <- api.waitEvent(e.id)
	}()
	select {
	case err := <-happened:
		return e.cause(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cause joins the stream's failure with err.
func (e *event) cause(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(e.stream.queue.Failure(), err)
}
