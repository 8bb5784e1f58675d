package cudalike

import (
	"context"
	"errors"
	"runtime"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// devicePiece is the number of bytes moved inside a device between two checks of the
// context.
const devicePiece = 512 * devices.MiB

// CopyIn copies bytes from host to device.
func (d *device) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return d.transfer(ctx, dst, src, d.moveIn)
}

// CopyOut copies bytes from device to host.
func (d *device) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	return d.transfer(ctx, src, dst, d.moveOut)
}

// transfer copies between a span and host memory; move copies one piece.
func (d *device) transfer(ctx context.Context, s devices.Span, host []byte, move func(at target, host []byte, on stream) error) error {
	leave, err := d.Begin(ctx, s, len(host))
	if err != nil {
		return err
	}
	defer leave()
	at := place(s)
	return d.withStream(func(on stream) error {
		return moves.Pieces(ctx, s.Len, moves.HostPiece, func(off, n devices.Size) error {
			return move(at.plus(off), host[off:off+n], on)
		})
	})
}

// Copy copies bytes within the device.
func (d *device) Copy(ctx context.Context, dst, src devices.Span) error {
	leave, err := d.BeginCopy(ctx, dst, src)
	if err != nil {
		return err
	}
	defer leave()
	to, from := place(dst), place(src)
	return d.withStream(func(s stream) error {
		step := func(off, n devices.Size) error {
			return d.moveWithin(to.plus(off), from.plus(off), n, s)
		}
		if dst.Mem != src.Mem || !dst.Overlaps(src.Range) {
			return moves.Pieces(ctx, src.Len, devicePiece, step)
		}
		return moves.Overlap{
			Piece: devicePiece,
			Copy:  step,
			Scratch: func(n devices.Size) (moves.Scratch, error) {
				return d.scratch(to, from, n, s)
			},
		}.Move(ctx, dst.Off, src.Off, src.Len)
	})
}

// Fill sets every byte of the span.
func (d *device) Fill(ctx context.Context, dst devices.Span, value byte) error {
	leave, err := d.Begin(ctx, dst, int(dst.Len))
	if err != nil {
		return err
	}
	defer leave()
	to := place(dst)
	return d.withStream(func(s stream) error {
		return moves.Pieces(ctx, dst.Len, devicePiece, func(off, n devices.Size) error {
			return d.work(s, func() error { return d.t.fill(to.plus(off), value, uint64(n), s) })
		})
	})
}

// place returns the address of a checked span.
func place(s devices.Span) target { return placeIn(card.BlockOf(s), devices.Size(s.Off)) }

// placeIn returns the address at offset off of a block.
func placeIn(b *card.Block, off devices.Size) target {
	return target{at: b.Addr, room: uint64(b.Size)}.plus(off)
}

// plus returns the target n bytes further on.
func (t target) plus(n devices.Size) target {
	return target{at: t.at + address(n), room: t.room - uint64(n)}
}

// work starts a copy on the stream and waits for it. If the wait fails, it waits again: the
// caller's memory is released afterwards, and the stream is reused. A runtime that has
// failed permanently returns from the second wait immediately.
func (d *device) work(s stream, begin func() error) error {
	err := d.On(func() error {
		if err := begin(); err != nil {
			return err
		}
		return d.t.wait(s)
	})
	if err != nil && d.Failed() == nil {
		err = errors.Join(err, d.On(func() error { return d.t.wait(s) }))
	}
	return err
}

// moveIn copies one piece from host to device.
func (d *device) moveIn(dst target, src []byte, s stream) error {
	return d.eachUniform(src, func(part []byte, off devices.Size) error {
		return d.work(s, func() error { return d.t.in(dst.plus(off), part, s) })
	})
}

// moveOut copies one piece from device to host.
func (d *device) moveOut(src target, dst []byte, s stream) error {
	return d.eachUniform(dst, func(part []byte, off devices.Size) error {
		return d.work(s, func() error { return d.t.out(part, src.plus(off).at, s) })
	})
}

// eachUniform calls fn with the parts of some host memory that are either entirely
// page-locked or not at all: runtimes refuse to copy anything else. The runtime uses a part
// until fn returns.
func (d *device) eachUniform(p []byte, fn func(part []byte, off devices.Size) error) error {
	defer runtime.KeepAlive(p)
	for off := 0; off < len(p); {
		n := d.Uniform(p[off:])
		if err := fn(p[off:off+n], devices.Size(off)); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// moveWithin copies one piece inside the device, between ranges that don't overlap. If the
// runtime requires both addresses to be aligned, unaligned bytes are copied through the
// host: the edges, or everything if the two are misaligned differently.
func (d *device) moveWithin(dst, src target, n devices.Size, s stream) error {
	edge := devices.Size(0)
	if align := uint64(d.t.copyAlign); align > 1 {
		if uint64(dst.at)%align != uint64(src.at)%align {
			return d.moveByHost(dst, src, n, s)
		}
		edge = min(n, devices.Size((align-uint64(src.at)%align)%align))
	}
	if edge > 0 {
		if err := d.moveByHost(dst, src, edge, s); err != nil || edge == n {
			return err
		}
	}
	to, from := dst.plus(edge), src.plus(edge)
	return d.work(s, func() error { return d.t.copy(to, from.at, uint64(n-edge), s) })
}

// moveByHost copies a piece from device to host to device.
func (d *device) moveByHost(dst, src target, n devices.Size, s stream) error {
	buf := make([]byte, min(n, moves.HostPiece))
	for off := devices.Size(0); off < n; off += devices.Size(len(buf)) {
		part := buf[:min(n-off, devices.Size(len(buf)))]
		if err := d.moveOut(src.plus(off), part, s); err != nil {
			return err
		}
		if err := d.moveIn(dst.plus(off), part, s); err != nil {
			return err
		}
	}
	return nil
}

// scratch allocates n bytes of device memory for a copy between overlapping ranges, or of
// host memory if the device has none left.
func (d *device) scratch(to, from target, n devices.Size, s stream) (moves.Scratch, error) {
	var at address
	err := d.On(func() (err error) {
		at, err = d.t.alloc(uint64(n))
		return err
	})
	if err != nil {
		err = d.AllocError(n, err)
	}
	if errors.Is(err, devices.ErrOutOfMemory) {
		buf := make([]byte, n)
		return moves.Scratch{
			Out:  func(off, n devices.Size) error { return d.moveOut(from.plus(off), buf[:n], s) },
			Back: func(off, n devices.Size) error { return d.moveIn(to.plus(off), buf[:n], s) },
			Free: func() error { return nil },
		}, nil
	}
	if err != nil {
		return moves.Scratch{}, err
	}
	aside := target{at: at, room: uint64(n)}
	return moves.Scratch{
		Out:  func(off, n devices.Size) error { return d.moveWithin(aside, from.plus(off), n, s) },
		Back: func(off, n devices.Size) error { return d.moveWithin(to.plus(off), aside, n, s) },
		Free: func() error { return d.On(func() error { return d.t.free(at) }) },
	}, nil
}
