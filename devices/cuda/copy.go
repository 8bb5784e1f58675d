package cuda

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// insidePiece is the number of bytes moved inside the card between two checks of the
// context. Two pieces are in flight, so that the card does not wait for the host between
// them: one takes less than 0.1 ms.
const insidePiece = 128 * devices.MiB

// CopyIn copies bytes from host to device.
func (d *device) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return d.transfer(ctx, dst, src, true)
}

// CopyOut copies bytes from device to host.
func (d *device) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	return d.transfer(ctx, src, dst, false)
}

// transfer copies between a span and host memory, in or out: directly if that is pinned,
// otherwise through the chunks of a lane.
func (d *device) transfer(ctx context.Context, s devices.Span, host []byte, in bool) error {
	leave, err := d.Begin(ctx, s, len(host))
	if err != nil || len(host) == 0 {
		return end(leave, err)
	}
	defer leave()
	at := card.AddressOf(s)
	start := func(on cuStream, pinned []byte, off devices.Size) error {
		if in {
			return d.api.copyIn(on, at.At(off), pinned)
		}
		return d.api.copyOut(on, pinned, at.At(off))
	}
	err = d.withLane(ctx, func(l *lane) error {
		if d.Pinned(host) {
			return l.pump(ctx, d.api, s.Len, moves.HostPiece, mover{start: func(slot moves.Slot, off, n devices.Size) error {
				return start(l.streams[slot], host[off:off+n], off)
			}})
		}
		if serr := l.stage(d.api); serr != nil {
			return serr
		}
		return l.pump(ctx, d.api, s.Len, chunkSize, mover{
			start: func(slot moves.Slot, off, n devices.Size) error {
				if in {
					copy(l.chunks[slot], host[off:off+n])
				}
				return start(l.streams[slot], l.chunks[slot][:n], off)
			},
			done: func(slot moves.Slot, off, n devices.Size) error {
				if !in {
					copy(host[off:off+n], l.chunks[slot])
				}
				return nil
			},
		})
	})
	keep(host)
	return err
}

// Copy copies bytes within the card.
func (d *device) Copy(ctx context.Context, dst, src devices.Span) error {
	leave, err := d.BeginCopy(ctx, dst, src)
	if err != nil || dst.Len == 0 {
		return end(leave, err)
	}
	defer leave()
	to, from := card.AddressOf(dst), card.AddressOf(src)
	return d.withLane(ctx, func(l *lane) error {
		if max(to, from)-min(to, from) >= address(src.Len) {
			return l.pump(ctx, d.api, src.Len, insidePiece, mover{start: func(s moves.Slot, off, n devices.Size) error {
				return d.api.copyWithin(l.streams[s], to.At(off), from.At(off), n)
			}})
		}
		return moves.Overlap{
			Piece:   insidePiece,
			Copy:    func(off, n devices.Size) error { return d.copyWithin(l, to.At(off), from.At(off), n) },
			Scratch: func(n devices.Size) (moves.Scratch, error) { return d.scratch(l, to, from, n) },
		}.Move(ctx, devices.Offset(to), devices.Offset(from), src.Len)
	})
}

// copyWithin copies a piece that does not overlap its destination.
func (d *device) copyWithin(l *lane, to, from address, n devices.Size) error {
	if err := d.api.copyWithin(l.streams[0], to, from, n); err != nil {
		return err
	}
	return d.api.synchronize(l.streams[0])
}

// scratch allocates memory for a copy between overlapping ranges.
func (d *device) scratch(l *lane, to, from address, n devices.Size) (moves.Scratch, error) {
	p, err := d.api.alloc(n)
	if err != nil {
		return moves.Scratch{}, d.AllocError(n, err)
	}
	return moves.Scratch{
		Out:  func(off, n devices.Size) error { return d.copyWithin(l, p, from.At(off), n) },
		Back: func(off, n devices.Size) error { return d.copyWithin(l, to.At(off), p, n) },
		Free: func() error { return d.api.free(p) },
	}, nil
}

// Fill sets every byte of the span.
func (d *device) Fill(ctx context.Context, dst devices.Span, value byte) error {
	leave, err := d.Begin(ctx, dst, int(dst.Len))
	if err != nil || dst.Len == 0 {
		return end(leave, err)
	}
	defer leave()
	to := card.AddressOf(dst)
	return d.withLane(ctx, func(l *lane) error {
		return l.pump(ctx, d.api, dst.Len, insidePiece, mover{start: func(s moves.Slot, off, n devices.Size) error {
			return d.api.fill(l.streams[s], to.At(off), value, n)
		}})
	})
}

// end leaves an operation that has nothing to do, and returns err.
func end(leave func(), err error) error {
	if err == nil {
		leave()
	}
	return err
}
