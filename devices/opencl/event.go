package opencl

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// event is a marker in a queue, or one that is held behind a gate.
type event struct {
	stream *stream
	// refs counts who needs the marker: who recorded the event, the step that
	// makes it, and all that wait for it.
	refs   atomic.Int32
	closed sync.Once
	// there is closed once id or err is set.
	there chan struct{}
	id    eventPointer
	err   error
}

// newEvent makes an event of which the caller has the one reference.
func newEvent(s *stream) *event {
	e := &event{stream: s, there: make(chan struct{})}
	e.refs.Store(1)
	return e
}

// put says that the marker is in the queue, and fail that it never will be. Each
// takes a reference.
func (e *event) put(id eventPointer) {
	e.id = id
	close(e.there)
	e.drop()
}

func (e *event) fail(err error) {
	e.err = err
	close(e.there)
	e.drop()
}

func (e *event) keep() { e.refs.Add(1) }

func (e *event) drop() {
	if e.refs.Add(-1) == 0 && e.id != 0 {
		_ = e.stream.d.api.releaseEvent(e.id) // an event that stays is no harm
	}
}

// queued says whether a queue can wait for it.
func (e *event) queued() bool {
	select {
	case <-e.there:
		return e.err == nil
	default:
		return false
	}
}

// Wait returns once the commands before it are done.
func (e *event) Wait(ctx context.Context) error {
	select {
	case <-e.there:
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.err != nil {
		return e.err
	}
	api := e.stream.d.api
	if status, err := api.status(e.id); err != nil || status <= 0 {
		return e.cause(errors.Join(err, check("command of a stream", min(status, 0))))
	}
	happened := make(chan error, 1)
	e.keep()
	go func() {
		defer e.drop()
		happened <- api.waitEvent(e.id)
	}()
	select {
	case err := <-happened:
		return e.cause(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cause adds what the stream knows of a failure.
func (e *event) cause(err error) error {
	if err == nil {
		return nil
	}
	e.stream.mu.Lock()
	defer e.stream.mu.Unlock()
	return errors.Join(e.stream.failed, err)
}

// Close lets go of it. Who waits for it goes on to.
func (e *event) Close() error {
	e.closed.Do(e.drop)
	return nil
}
