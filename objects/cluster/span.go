package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// readPieces is the number of pieces of one span that are read at once: while the owner
// moves one, the question for the next is there. Pieces of a file are written
// one after the other, at either side: if a later one arrived and the one before
// it did not, the file would have a hole that nobody has written.
const readPieces = 2

// Span is a range of the file for Engine.Copy, which then reads or writes it.
func (f *File) Span(off, n uint64) transport.Span {
	return transport.RemoteSpan(remote{f}, devices.Offset(off), devices.Size(n))
}

// remote is a file as memory that Engine.Copy reads and writes. The owner
// moves the bytes: we lend it the other end.
type remote struct{ f *File }

var _ transport.Lender = remote{}

// Lends reports whether a read is lent the caller's memory: a slot has no bytes
// of anything else.
func (remote) Lends(n devices.Size) bool { return n > slotSize }

// Fetch has the owner put bytes of the file into dst.
func (r remote) Fetch(ctx context.Context, dst transport.Span, off devices.Offset) (transport.Path, error) {
	if dst.Len() <= slotSize {
		return r.fetchSmall(ctx, dst, uint64(off))
	}
	return r.lend(ctx, dst, uint64(off), lending{
		method: proto.MethodRead, rights: wire.Writable, staged: fetchStaged, pieces: readPieces, again: true,
	})
}

// Store has the owner get the bytes of the file from src.
func (r remote) Store(ctx context.Context, src transport.Span, off devices.Offset) (transport.Path, error) {
	defer r.f.changing()()
	if src.Len() <= slotSize {
		return r.storeSmall(ctx, src, uint64(off))
	}
	return r.lend(ctx, src, uint64(off), lending{
		method: proto.MethodWrite, rights: wire.Readable, staged: storeStaged, pieces: 1,
	})
}

// lending describes what the owner is asked to do with memory of ours.
type lending struct {
	method rpc.Method
	rights wire.Rights
	// staged does it by way of memory that the owner can open.
	staged func(ctx context.Context, f *File, m staging) (string, error)
	// pieces is the number of pieces that are under way at once.
	pieces int
	// again says that it may be done twice.
	again bool
}

// lend shares a span with the owner while it moves bytes of the file to or from
// it, and returns when it has it back.
func (r remote) lend(ctx context.Context, span transport.Span, off uint64, l lending) (transport.Path, error) {
	f := r.f
	if span.Place().File != nil {
		l.pieces = 1
	}
	var path atomic.Pointer[string]
	err := f.with(ctx, l.again, func(s *session, handle uint64) error {
		if s.shared && span.Place().File == nil {
			// The node can't open it: it is bytes of this process, or a part of
			// a device's memory.
			way, err := l.staged(ctx, f, staging{s: s, handle: handle, span: span, off: off})
			path.Store(&way)
			return err
		}
		b, err := f.n.c.comm.Table().RegisterSpan(span)
		if err != nil {
			return err
		}
		d, err := f.n.share(ctx, b, l.rights)
		if err == nil {
			memory := d.Append(nil)
			var n uint64
			n, err = inPieces(ctx, uint64(span.Len()), l.pieces, f.n.pace.piece, func(ctx context.Context, at, n uint64) (uint64, error) {
				out, failure := f.piece(ctx, s, l.method, &proto.MoveAsk{
					Handle: handle, Off: off + at, N: n, Memory: memory, MemOff: at,
				})
				if failure == nil {
					path.Store(&out.Path)
				}
				return out.N, failure
			})
			if err == nil && n < uint64(span.Len()) {
				err = short(l.method, n, uint64(span.Len()))
			}
		}
		if failure := f.n.giveBack(ctx, b); failure != nil && err == nil {
			err = failure
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%d bytes at %d of file %d: %w", span.Len(), off, f.ino, err)
	}
	return pathOf(text(&path)), nil
}

// share is comm's, within the time of a question.
func (n *Node) share(ctx context.Context, b *region.Buffer, rights wire.Rights) (wire.Descriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, n.c.opts.Timeout)
	defer cancel()
	return n.c.comm.Share(ctx, n.rank, b, rights)
}

// piece moves one piece of a larger move.
func (f *File) piece(ctx context.Context, s *session, m rpc.Method, in *proto.MoveAsk) (proto.MoveAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.n.c.opts.Timeout)
	defer cancel()
	begun := time.Now()
	out, err := f.moveIn(ctx, s, m, in)
	if err == nil {
		f.n.pace.took(out.N, time.Since(begun))
	}
	return out, err
}

// short is a move that ended before all was moved: at the end of the file, or
// since the device is full.
func short(m rpc.Method, n, want uint64) error {
	if m == proto.MethodRead {
		return fmt.Errorf("the file ends after %d of %d bytes: %w: %w", n, want, devices.ErrRange, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("room for %d of %d bytes: %w", n, want, devices.ErrOutOfMemory)
}

// fetchSmall reads by way of a slot.
func (r remote) fetchSmall(ctx context.Context, dst transport.Span, off uint64) (transport.Path, error) {
	ctx, cancel := context.WithTimeout(ctx, r.f.n.c.opts.Timeout)
	defer cancel()
	var path transport.Path
	err := r.f.with(ctx, true, func(s *session, handle uint64) error {
		b, err := s.slots.blank(ctx, int(dst.Len()))
		if err != nil {
			return err
		}
		out, err := r.f.moveIn(ctx, s, proto.MethodRead, &proto.MoveAsk{
			Handle: handle, Off: off, N: uint64(dst.Len()), Memory: b.memory,
		})
		defer func() { b.done(err) }()
		if err != nil {
			return err
		}
		path = pathOf(out.Path)
		if out.N < uint64(dst.Len()) {
			return short(proto.MethodRead, out.N, uint64(dst.Len()))
		}
		_, failure := r.f.n.c.opts.Engine.Copy(ctx, dst, transport.HostSpan(b.bytes(int(out.N))))
		return failure
	})
	return path, err
}

// storeSmall writes by way of a slot.
func (r remote) storeSmall(ctx context.Context, src transport.Span, off uint64) (transport.Path, error) {
	ctx, cancel := context.WithTimeout(ctx, r.f.n.c.opts.Timeout)
	defer cancel()
	var path transport.Path
	err := r.f.with(ctx, false, func(s *session, handle uint64) error {
		b, err := s.slots.get(ctx)
		if err != nil {
			return err
		}
		defer func() { b.done(err) }()
		if _, failure := r.f.n.c.opts.Engine.Copy(ctx, transport.HostSpan(b.filled(int(src.Len()))), src); failure != nil {
			return failure
		}
		var out proto.MoveAnswer
		out, err = r.f.moveIn(ctx, s, proto.MethodWrite, &proto.MoveAsk{
			Handle: handle, Off: off, N: uint64(src.Len()), Memory: b.memory,
		})
		if err != nil {
			return err
		}
		path = pathOf(out.Path)
		if out.N < uint64(src.Len()) {
			return short(proto.MethodWrite, out.N, uint64(src.Len()))
		}
		return nil
	})
	return path, err
}

// maxPath is the longest text that is taken for a way.
const maxPath = 64

// pathOf is the owner's view of the way. Its text comes from another machine
// and ends in attributes and counters, so only what can be one is taken.
func pathOf(text string) transport.Path {
	p := transport.Path(text)
	if p == transport.PathTCP || p == transport.PathSHM || p == transport.PathRDMA {
		return p
	}
	plain := !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
	if strings.HasPrefix(text, "ucx:") && plain && len(text) <= maxPath {
		return p
	}
	return transport.PathTCP
}
