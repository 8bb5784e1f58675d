package cuda

import (
	"context"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// event is a point in a stream's work.
type event struct {
	devices.Mark
	stream *stream
	id     cuEvent
}

// newEvent returns an event that the caller closes.
func newEvent(s *stream) *event {
	e := &event{stream: s}
	e.Open(e.destroy)
	return e
}

// record submits it to the stream.
func (e *event) record(ctx context.Context) error {
	d := e.stream.d
	leave, err := d.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return d.On(func() (err error) {
		if e.id, err = d.api.createEvent(); err != nil {
			return err
		}
		return d.api.recordEvent(e.id, e.stream.id)
	})
}

// The first and the longest pause between two queries of an event.
const (
	shortPause = 5 * time.Microsecond
	longPause  = 500 * time.Microsecond
)

// Wait returns once the work before it is done.
func (e *event) Wait(ctx context.Context) error {
	if err := e.Recorded.Wait(ctx); err != nil {
		return err
	}
	release := e.Keep()
	defer release()
	timer := time.NewTimer(shortPause)
	defer timer.Stop()
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		if done, err := e.look(ctx); done || err != nil {
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

// look reports whether the event has happened.
func (e *event) look(ctx context.Context) (bool, error) {
	leave, err := e.stream.d.Enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	return e.stream.query(e.id)
}

// destroy frees the card's event, unless that was freed with the closed device.
func (e *event) destroy() {
	if e.id == 0 {
		return
	}
	d := e.stream.d
	leave, gone := d.Enter(context.Background())
	if gone != nil {
		return
	}
	defer leave()
	e.stream.destroy(e.id)
}
