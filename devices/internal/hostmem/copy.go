package hostmem

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// pieceSize is the number of bytes moved between two checks of the context.
const pieceSize = 1 << 20

// Pace is called after each piece of n bytes and may delay the copy; its error ends the
// copy. nil means no delay.
type Pace func(ctx context.Context, n int) error

// enter checks the span and returns its bytes, and the block that the caller must leave.
// The handle of every memory of d is a *Block.
func enter(d devices.Device, s devices.Span) ([]byte, *Block, error) {
	if err := s.Check(d); err != nil {
		return nil, nil, err
	}
	b, ok := s.Mem.Handle().(*Block)
	if !ok {
		return nil, nil, fmt.Errorf("memory of %s with a foreign handle: %w", d.Info().Name, devices.ErrRange)
	}
	bytes, err := b.Enter()
	if err != nil {
		return nil, nil, err
	}
	return bytes[s.Off:s.End():s.End()], b, nil
}

func sameLength(a, b int) error {
	if a != b {
		return fmt.Errorf("copy of %d bytes into %d: %w", b, a, devices.ErrRange)
	}
	return nil
}

// CopyIn copies src into the span of d.
func CopyIn(ctx context.Context, d devices.Device, dst devices.Span, src []byte, pace Pace) error {
	to, block, err := enter(d, dst)
	if err != nil {
		return err
	}
	defer block.Leave()
	if err := sameLength(len(to), len(src)); err != nil {
		return err
	}
	return move(ctx, to, src, false, pace)
}

// CopyOut copies the span of d into dst.
func CopyOut(ctx context.Context, d devices.Device, dst []byte, src devices.Span, pace Pace) error {
	from, block, err := enter(d, src)
	if err != nil {
		return err
	}
	defer block.Leave()
	if err := sameLength(len(dst), len(from)); err != nil {
		return err
	}
	return move(ctx, dst, from, false, pace)
}

// Copy copies between two spans of d as memmove does.
func Copy(ctx context.Context, d devices.Device, dst, src devices.Span, pace Pace) error {
	to, block, err := enter(d, dst)
	if err != nil {
		return err
	}
	defer block.Leave()
	from, block, err := enter(d, src)
	if err != nil {
		return err
	}
	defer block.Leave()
	if err := sameLength(len(to), len(from)); err != nil {
		return err
	}
	backward := dst.Mem == src.Mem && dst.Overlaps(src.Range) && dst.Off > src.Off
	return move(ctx, to, from, backward, pace)
}

// Fill sets every byte of the span of d.
func Fill(ctx context.Context, d devices.Device, dst devices.Span, value byte, pace Pace) error {
	to, block, err := enter(d, dst)
	if err != nil {
		return err
	}
	defer block.Leave()
	return pieces(ctx, len(to), false, pace, func(off, end int) {
		part := to[off:end]
		if value == 0 {
			clear(part)
			return
		}
		part[0] = value
		for done := 1; done < len(part); done *= 2 {
			copy(part[done:], part[:done])
		}
	})
}

// MapHost returns the memory of the span of d itself. It stays mapped until the view is
// released, even if it is lost or freed meanwhile.
func MapHost(ctx context.Context, d devices.Device, s devices.Span) (devices.View, error) {
	if err := ctx.Err(); err != nil {
		return devices.View{}, err
	}
	bytes, block, err := enter(d, s)
	if err != nil {
		return devices.View{}, err
	}
	return devices.View{Bytes: bytes, Release: sync.OnceFunc(block.Leave)}, nil
}

// move copies in pieces; backward starts at the end, for ranges that overlap that way.
func move(ctx context.Context, dst, src []byte, backward bool, pace Pace) error {
	return pieces(ctx, len(dst), backward, pace, func(off, end int) {
		copy(dst[off:end], src[off:end])
	})
}

// pieces calls do for every piece of n bytes and checks the context before each.
func pieces(ctx context.Context, n int, backward bool, pace Pace, do func(off, end int)) error {
	for done := 0; done < n; done += pieceSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		size := min(pieceSize, n-done)
		off := done
		if backward {
			off = n - done - size
		}
		do(off, off+size)
		if pace == nil {
			continue
		}
		if err := pace(ctx, size); err != nil {
			return err
		}
	}
	return nil
}
