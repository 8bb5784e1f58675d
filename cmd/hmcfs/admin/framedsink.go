package admin

import (
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// frameSink sends the lines of one call as frames.
type frameSink struct {
	framed *framed
	id     uint64
	buf    []byte
}

func (k *frameSink) line(one adminapi.Line) error {
	if one.Begun {
		if err := k.flush(); err != nil {
			return err
		}
		b := frames.Begin(k.buf[:0], frames.KindBegun, 0, k.id)
		if one.Code != "" {
			b = frames.AppendFailure(b, frames.Failure{Code: one.Code, Text: one.Error})
		}
		return k.send(b)
	}
	k.begin()
	k.buf = frames.AppendLine(k.buf, &one)
	return k.added()
}

// plain is line for a key that was a success. The key itself is not sent.
func (k *frameSink) plain(n int, _ string) error {
	k.begin()
	k.buf = frames.AppendPlain(k.buf, n)
	return k.added()
}

// begin begins a frame of lines, unless there is one.
func (k *frameSink) begin() {
	if len(k.buf) == 0 {
		k.buf = frames.Begin(k.buf, frames.KindLines, 0, k.id)
	}
}

// added sends the lines once there are many.
func (k *frameSink) added() error {
	if len(k.buf) >= lineBuffer {
		return k.flush()
	}
	return nil
}

// send sends the frame in b, whose memory is used for the next one.
func (k *frameSink) send(b []byte) error {
	err := frames.Finish(b, 0)
	if err == nil {
		err = k.framed.send(b)
	}
	k.buf = b[:0]
	return err
}

func (k *frameSink) flush() error {
	if len(k.buf) == 0 {
		return nil
	}
	return k.send(k.buf)
}

func (k *frameSink) end() {}

// last sends the rest of the lines and ends the answer.
func (k *frameSink) last() error {
	if len(k.buf) == 0 {
		k.buf = frames.Begin(k.buf, frames.KindLast, 0, k.id)
	} else {
		frames.SetKind(k.buf, frames.KindLast)
	}
	return k.send(k.buf)
}

// refuse ends the answer with an error of the whole call.
func (k *frameSink) refuse(fault error) error {
	_, code := k.framed.server.fault(fault)
	b := frames.Begin(k.buf[:0], frames.KindFailure, 0, k.id)
	return k.send(frames.AppendFailure(b, frames.Failure{Code: code, Text: fault.Error()}))
}
