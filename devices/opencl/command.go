package opencl

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// CopyIn copies bytes from host to device by write commands.
func (d *device) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return d.transfer(ctx, dst, src, d.in, d.api.write)
}

// CopyOut copies bytes from device to host by read commands.
func (d *device) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	return d.transfer(ctx, src, dst, d.out, d.api.read)
}

// transfer copies between a span and host memory by commands of a queue.
func (d *device) transfer(
	ctx context.Context, s devices.Span, host []byte, q queueID, command func(q queueID, m memID, off uint64, p []byte) error,
) error {
	leave, err := d.life.Begin(ctx, d.self, s, len(host))
	if err != nil {
		return err
	}
	defer leave()
	b := d.buffer(s)
	return moves.Pieces(ctx, s.Len, moves.HostPiece, func(off, n devices.Size) error {
		return command(q, b.mem, uint64(s.Off)+uint64(off), host[off:off+n])
	})
}

// Copy copies bytes within the device by copy commands.
func (d *device) Copy(ctx context.Context, dst, src devices.Span) error {
	leave, err := d.life.BeginCopy(ctx, d.self, dst, src)
	if err != nil {
		return err
	}
	defer leave()
	to, from := d.place(dst), d.place(src)
	if to == from {
		return nil
	}
	if dst.Mem != src.Mem || !dst.Overlaps(src.Range) {
		return moves.Pieces(ctx, src.Len, d.piece(), func(off, n devices.Size) error {
			return d.api.copy(d.within, to.at(off), from.at(off), uint64(n))
		})
	}
	return d.copyOverlap(ctx, to, from, src.Len)
}

// Fill sets every byte of the span by fill commands.
func (d *device) Fill(ctx context.Context, dst devices.Span, value byte) error {
	leave, err := d.life.Begin(ctx, d.self, dst, int(dst.Len))
	if err != nil {
		return err
	}
	defer leave()
	return d.fillCommands(ctx, d.place(dst), dst.Len, value)
}

func (d *device) place(s devices.Span) place {
	return place{mem: d.buffer(s).mem, off: uint64(s.Off)}
}

// piece returns the number of bytes moved inside the device at a time.
func (d *device) piece() devices.Size {
	if d.entry.unified {
		return sharedPiece
	}
	return devicePiece
}

// copyOverlap copies n bytes between overlapping ranges of one buffer, which a single
// command must not do.
func (d *device) copyOverlap(ctx context.Context, dst, src place, n devices.Size) error {
	return moves.Overlap{
		Piece: d.piece(),
		Copy: func(off, n devices.Size) error {
			return d.api.copy(d.within, dst.at(off), src.at(off), uint64(n))
		},
		Scratch: func(n devices.Size) (moves.Scratch, error) {
			scratch, err := d.api.createBuffer(d.context, clMemReadWrite, uint64(n), nil)
			if err != nil {
				return moves.Scratch{}, err
			}
			return moves.Scratch{
				Out: func(off, n devices.Size) error {
					return d.api.copy(d.within, place{mem: scratch}, src.at(off), uint64(n))
				},
				Back: func(off, n devices.Size) error {
					return d.api.copy(d.within, dst.at(off), place{mem: scratch}, uint64(n))
				},
				Free: func() error { return d.api.releaseBuffer(scratch) },
			}, nil
		},
	}.Move(ctx, devices.Offset(dst.off), devices.Offset(src.off), n)
}

// fillCommands sets n bytes. GPUs are fast with a pattern of several bytes, which must be
// aligned, so the edges are set byte by byte; a driver for the host's processor is faster
// with one byte throughout.
func (d *device) fillCommands(ctx context.Context, dst place, n devices.Size, value byte) error {
	pattern := make([]byte, 16)
	if d.entry.unified {
		pattern = pattern[:1]
	}
	for i := range pattern {
		pattern[i] = value
	}
	wide := uint64(len(pattern))
	end := dst.off + uint64(n)
	head := min((dst.off+wide-1)/wide*wide, end)
	tail := max(end/wide*wide, head)
	for _, part := range []struct {
		from, to uint64
		width    int
	}{{dst.off, head, 1}, {head, tail, len(pattern)}, {tail, end, 1}} {
		err := moves.Pieces(ctx, devices.Size(part.to-part.from), d.piece(), func(off, n devices.Size) error {
			return d.api.fill(d.within, place{mem: dst.mem, off: part.from}.at(off), uint64(n), pattern[:part.width])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// at returns the place off bytes further on.
func (p place) at(off devices.Size) place {
	return place{mem: p.mem, off: p.off + uint64(off)}
}
