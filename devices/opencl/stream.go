package opencl

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/internal/streams"
)

// stream contains the calls of streams.Calls for a queue of the device, whose commands are
// not waited for individually.
//
// A user event could make the queue wait for external events. But if one fails while a
// command before its barrier completes, PoCL 3.1 terminates the process.
type stream struct {
	d  *device
	id queueID
}

// NewStream returns a stream with a queue of its own.
func (d *device) NewStream(ctx context.Context) (devices.Stream, error) {
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	q, err := d.api.createQueue(d.context, d.entry.id)
	if err != nil {
		return nil, err
	}
	s := &stream{d: d, id: q}
	return streams.New(ctx, streams.Calls{
		Device: d.self, Domain: d,
		Enter: func(ctx context.Context) (func(), error) { return d.life.Enter(ctx, d.self) },
		Copy:  s.copy, Fill: s.fill, Reduce: s.reduce, HostReduces: s.hostReduces,
		Record: s.record, After: s.after, Done: s.done, Wait: s.wait, Free: s.free, Drop: s.free,
		Release: d.releaseMemory, Close: s.close,
	}), nil
}

// NewStream returns a stream that the host drives: a command may start only once no host
// user is left, which a queue can't wait for (H2).
func (d *mappedDevice) NewStream(ctx context.Context) (devices.Stream, error) {
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	return devices.NewHostStream(ctx, d.self), nil
}

// flushed makes the device start a command that has been enqueued without an error.
func (s *stream) flushed(event eventPointer, err error) (streams.ID, error) {
	if err != nil {
		return 0, err
	}
	return event, s.d.api.flush(s.id)
}

func (s *stream) copy(dst, src devices.Span) (streams.ID, error) {
	return s.flushed(s.d.api.startCopy(s.id, s.d.place(dst), s.d.place(src), uint64(src.Len)))
}

func (s *stream) fill(dst devices.Span, value byte) (streams.ID, error) {
	return s.flushed(s.d.api.startFill(s.id, s.d.place(dst), uint64(dst.Len), []byte{value}))
}

func (s *stream) reduce(dst, src devices.Span, t elem.Type, op elem.Op) (streams.ID, error) {
	return s.flushed(s.d.startReduce(s.id, reduction{dst: s.d.place(dst), src: s.d.place(src), t: t, op: op}, dst.Len))
}

func (s *stream) hostReduces(t elem.Type, op elem.Op) bool {
	return s.d.entry.isHost() || s.d.kernelMissing(t, op)
}

// record submits a marker to the queue.
func (s *stream) record() (streams.ID, error) { return s.flushed(s.d.api.marker(s.id)) }

// after submits a barrier to the queue.
func (s *stream) after(e streams.ID) (streams.ID, error) { return s.flushed(s.d.api.barrier(s.id, e)) }

// done reports whether the command of an event is complete.
func (s *stream) done(e streams.ID) (bool, error) {
	status, err := s.d.api.status(e)
	if err == nil && status > 0 {
		return false, nil
	}
	return true, errors.Join(err, check("command of a stream", min(status, 0)))
}

// wait returns once the commands before an event are done.
func (s *stream) wait(ctx context.Context, e *streams.Event) error {
	done, err := s.done(e.ID)
	if err != nil {
		return e.Cause(err)
	}
	if done {
		return nil
	}
	happened := make(chan Code, 1)
	release := e.Keep()
	go func() {
		defer release()
		happened <- s.d.api.waitEvent(e.ID)
	}()
	select {
	case code := <-happened:
		err = check("clWaitForEvents", code)
	case <-ctx.Done():
		return ctx.Err()
	}
	if err != nil {
		return e.Cause(err)
	}
	return nil
}

// free releases an event; a leaked one is harmless.
func (s *stream) free(e streams.ID) { s.d.api.ReleaseEvent.Call(e) }

// close releases the queue, which outlives a closed device.
func (s *stream) close(reap func()) error {
	// Errors of the stream's commands have been reported to its user.
	_ = s.d.api.finish(s.id)
	reap()
	return s.d.api.releaseQueue(s.id)
}
