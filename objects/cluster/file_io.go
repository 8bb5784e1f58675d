package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// readAhead is the number of concurrent requests of one read. Those of a write are sequential:
// see readPieces.
const readAhead = 4

func oneSlot() uint64 { return uint64(slotSize) }

// Peek reads into p, fewer than len(p) bytes only at the end of the file.
func (f *File) Peek(ctx context.Context, p []byte, off uint64) (int, error) {
	n, err := inPieces(ctx, uint64(len(p)), readAhead, oneSlot, func(ctx context.Context, at, n uint64) (uint64, error) {
		return f.peek(ctx, p[at:at+n], off+at)
	})
	return int(n), err
}

// peek reads up to the size of a slot.
func (f *File) peek(ctx context.Context, p []byte, off uint64) (uint64, error) {
	out, err := f.readSlot(ctx, off, uint64(len(p)), func(got []byte) error {
		copy(p, got)
		return nil
	})
	return out.N, err
}

// readSlot reads n bytes, at most the size of a slot, and passes those that have arrived to use.
func (f *File) readSlot(ctx context.Context, off, n uint64, use func(got []byte) error) (out proto.MoveAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.n.c.opts.Timeout)
	defer cancel()
	err = f.with(ctx, true, func(s *session, handle uint64) error {
		b, failure := s.slots.blank(ctx, int(n))
		if failure != nil {
			return failure
		}
		out, err = f.moveIn(ctx, s, proto.MethodRead, &proto.MoveAsk{Handle: handle, Off: off, N: n, Memory: b.memory})
		defer b.done(err)
		if err != nil {
			return err
		}
		return use(b.bytes(int(out.N)))
	})
	return out, err
}

// moveIn asks the owner to move bytes, in a session.
func (f *File) moveIn(ctx context.Context, s *session, m rpc.Method, in *proto.MoveAsk) (proto.MoveAnswer, error) {
	var out proto.MoveAnswer
	if err := f.n.askIn(ctx, s, question{method: m, in: in, out: &out}); err != nil {
		if answer, ok := errors.AsType[*rpc.Error](err); ok && answer.Code == proto.CodeUnreachable {
			// The owner can't reach our memory: it considers the session ended.
			err = fmt.Errorf("%w: %w", control.ErrDisconnected, err)
		}
		return proto.MoveAnswer{}, err
	}
	if out.N > in.N {
		return proto.MoveAnswer{}, fmt.Errorf("invalid number of bytes moved: %d of %d: %w", out.N, in.N, proto.ErrBody)
	}
	count := &f.n.c.count.bytesOut
	if m == proto.MethodRead {
		count = &f.n.c.count.bytesIn
		f.open.read(out.Version)
	}
	count.Add(out.N)
	f.open.sized(out.Size, out.Order)
	return out, nil
}

// WriteAt writes as objects.File.WriteAt does: fewer bytes than len(p) without an error mean
// that the device became full, or the context ended, after them.
func (f *File) WriteAt(ctx context.Context, p []byte, w objects.Write) (int, error) {
	defer f.Changing()()
	n, err := inPieces(ctx, uint64(len(p)), 1, oneSlot, func(ctx context.Context, at, n uint64) (uint64, error) {
		part := w
		part.Off += at
		part.KillPriv = w.KillPriv && at == 0
		return f.write(ctx, p[at:at+n], part)
	})
	if n > 0 && (errors.Is(err, context.Canceled) || errors.Is(err, devices.ErrOutOfMemory)) {
		err = nil
	}
	return int(n), err
}

// Changing records the start of a change of the file by this node; the returned function, its
// end.
func (f *File) Changing() (done func()) {
	f.open.version.Add(1)
	return func() {
		f.open.version.Add(1)
		f.n.touched(f.ino)
	}
}

// write writes up to the size of a slot.
func (f *File) write(ctx context.Context, p []byte, w objects.Write) (uint64, error) {
	out, err := f.writeSlot(ctx, w, uint64(len(p)), false, func(b []byte) error {
		copy(b, p)
		return nil
	})
	return out.N, err
}

// writeSlot writes the n bytes, at most the size of a slot, that fill provides. If all are
// required, fewer are an error.
func (f *File) writeSlot(ctx context.Context, w objects.Write, n uint64, all bool, fill func(b []byte) error) (out proto.MoveAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.n.c.opts.Timeout)
	defer cancel()
	err = f.withDoubt(ctx, false, func(s *session, handle uint64, doubtful bool) error {
		if doubtful && w.Append {
			if w.Append, err = f.appendsAgain(ctx, w.Off, n, fill); err != nil {
				return err
			}
		}
		b, failure := s.slots.get(ctx)
		if failure != nil {
			return failure
		}
		if err = fill(b.filled(int(n))); err != nil {
			b.done(nil) // nothing was requested
			return err
		}
		out, err = f.moveIn(ctx, s, proto.MethodWrite, &proto.MoveAsk{
			Handle: handle, Off: w.Off, N: n, Memory: b.memory, Append: w.Append, KillPriv: w.KillPriv,
		})
		b.done(err)
		if err == nil && all && out.N < n {
			return short(proto.MethodWrite, out.N, n)
		}
		return err
	})
	return out, err
}

// appendsAgain decides how an append of the n bytes that fill provides is repeated, if a daemon may have
// carried it out before it died: again as an append, since nothing was added where the writer saw the
// end, or at that offset, over the same bytes.
//
// Errors: ErrUnreachable if something else was added there.
func (f *File) appendsAgain(ctx context.Context, off, n uint64, fill func(b []byte) error) (again bool, err error) {
	end, err := f.Length(ctx)
	if err != nil || end == off {
		return true, err
	}
	if end > off {
		p, has := make([]byte, n), make([]byte, min(n, end-off))
		if err = fill(p); err != nil {
			return false, err
		}
		got, err := f.peek(ctx, has, off)
		if err != nil {
			return false, err
		}
		if got == uint64(len(has)) && bytes.Equal(has, p[:got]) {
			return false, nil
		}
	}
	return false, fmt.Errorf("node %s has ended and is back, and it is unknown whether it has appended %d bytes before: %w", f.n.name, n, ErrUnreachable)
}

// Allocate implements fallocate(2).
func (f *File) Allocate(ctx context.Context, mode objects.AllocateMode, off, n uint64) error {
	defer f.Changing()()
	var out proto.Attr
	err := f.ask(ctx, false, func(handle uint64) question {
		return question{method: proto.MethodAllocate, out: &out, in: &proto.AllocateAsk{
			Handle: handle, Mode: uint32(mode), Off: off, N: n,
		}}
	})
	if err != nil {
		return err
	}
	a, err := f.n.received(&out, f.ino)
	if err == nil {
		f.n.inos.noteSize(&a, out.Order)
	}
	return err
}

// Seek finds data or a hole.
func (f *File) Seek(ctx context.Context, off uint64, w objects.Whence) (uint64, error) {
	var out proto.SeekAnswer
	err := f.ask(ctx, true, func(handle uint64) question {
		return question{method: proto.MethodSeek, out: &out, in: &proto.SeekAsk{
			Handle: handle, Off: off, Hole: w == objects.SeekHole,
		}}
	})
	if err == nil && out.Off < off {
		err = fmt.Errorf("node %s: a seek from offset %d returned the earlier offset %d: %w", f.n.name, off, out.Off, proto.ErrBody)
	}
	return out.Off, err
}

// Sync makes the owner write its record.
func (f *File) Sync(ctx context.Context) error {
	return f.ask(ctx, true, func(handle uint64) question {
		return question{method: proto.MethodSync, in: &proto.HandleAsk{Handle: handle}}
	})
}
