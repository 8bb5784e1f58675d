package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// readPieces is the number of pieces of one span that are read at once: while the owner moves
// one, the next request is already there. Pieces of a file are written one after the other, on
// either side: if a later one arrived and the previous one did not, the file would have a hole
// that no program has written.
const readPieces = 2

// Span returns a range of the file for Engine.Copy, which then reads or writes it.
func (f *File) Span(off, n uint64) transport.Span {
	return transport.RemoteSpan(remote{f}, devices.Offset(off), devices.Size(n))
}

// remote is a file as memory that Engine.Copy reads and writes. The owner moves the bytes:
// this node exposes the memory at the other end.
type remote struct{ f *File }

var _ transport.DirectWriter = remote{}

// WritesDirectly reports whether a read exposes the caller's memory to the owner; a slot, which small
// reads use instead, has no other data in it.
func (remote) WritesDirectly(n devices.Size) bool { return n > slotSize }

// Fetch makes the owner put bytes of the file into dst.
func (r remote) Fetch(ctx context.Context, dst transport.Span, off devices.Offset) (transport.Path, error) {
	if dst.Len() <= slotSize {
		return r.fetchSmall(ctx, dst, uint64(off))
	}
	return r.expose(ctx, dst, uint64(off), exposure{
		method: proto.MethodRead, rights: wire.Writable, staged: fetchStaged, pieces: readPieces, again: true,
	})
}

// Store makes the owner get the bytes of the file from src.
func (r remote) Store(ctx context.Context, src transport.Span, off devices.Offset) (transport.Path, error) {
	defer r.f.Changing()()
	if src.Len() <= slotSize {
		return r.storeSmall(ctx, src, uint64(off))
	}
	return r.expose(ctx, src, uint64(off), exposure{
		method: proto.MethodWrite, rights: wire.Readable, staged: storeStaged, pieces: 1,
	})
}

// exposure describes a move between the file and memory of ours that the owner carries out.
type exposure struct {
	method rpc.Method
	rights wire.Rights
	// staged carries it out through memory that the owner can open.
	staged func(ctx context.Context, f *File, m staging) (string, error)
	// pieces is the number of pieces in progress at once.
	pieces int
	// again is true if it may be carried out twice.
	again bool
}

// expose shares a span with the owner while the owner moves bytes of the file to or from it, and
// returns when the span is no longer shared.
func (r remote) expose(ctx context.Context, span transport.Span, off uint64, l exposure) (transport.Path, error) {
	f := r.f
	if span.Place().File != nil {
		l.pieces = 1
	}
	var path atomic.Pointer[string]
	err := f.with(ctx, l.again, func(s *session, handle uint64) error {
		if s.shared && span.Place().File == nil {
			// The node can't open it: it is memory of this process, or a part of a device's
			// memory.
			way, err := l.staged(ctx, f, staging{s: s, handle: handle, span: span, off: off})
			path.Store(&way)
			return err
		}
		b, err := f.n.c.comm.Table().RegisterSpan(span)
		if err != nil {
			return err
		}
		sharing, cancel := context.WithTimeout(ctx, f.n.c.opts.Timeout)
		d, err := f.n.c.comm.Share(sharing, f.n.rank, b, l.rights)
		cancel()
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
		return "", fmt.Errorf("move %d bytes at offset %d of file %d: %w", span.Len(), off, f.ino, err)
	}
	return pathOf(text(&path)), nil
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

// short is the error of a move that ended early: at the end of the file, or because the device
// is full.
func short(m rpc.Method, n, want uint64) error {
	if m == proto.MethodRead {
		return fmt.Errorf("the file ends after %d of %d bytes: %w: %w", n, want, devices.ErrRange, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("memory for only %d of %d bytes: %w", n, want, devices.ErrOutOfMemory)
}

// fetchSmall reads through a slot.
func (r remote) fetchSmall(ctx context.Context, dst transport.Span, off uint64) (transport.Path, error) {
	want := uint64(dst.Len())
	out, err := r.f.readSlot(ctx, off, want, func(got []byte) error {
		if n := uint64(len(got)); n < want {
			return short(proto.MethodRead, n, want)
		}
		_, err := r.f.n.c.opts.Engine.Copy(ctx, dst, transport.HostSpan(got))
		return err
	})
	return pathOf(out.Path), err
}

// storeSmall writes through a slot.
func (r remote) storeSmall(ctx context.Context, src transport.Span, off uint64) (transport.Path, error) {
	out, err := r.f.writeSlot(ctx, objects.Write{Off: off}, uint64(src.Len()), true, func(b []byte) error {
		_, err := r.f.n.c.opts.Engine.Copy(ctx, transport.HostSpan(b), src)
		return err
	})
	return pathOf(out.Path), err
}

// maxPath is the maximum length of a text accepted as a route.
const maxPath = 64

// pathOf returns the route as the owner sees it. Its text comes from another machine and ends
// up in attributes and counters, so only a valid route is accepted.
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
