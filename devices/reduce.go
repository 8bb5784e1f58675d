package devices

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// Reducer is the ability to combine elements on the device.
type Reducer interface {
	// Reduce sets dst = dst op src, element by element; for elem.Avg it adds. The spans
	// must have the same length, and be identical or disjoint. Both memories must be this
	// device's. Its results are those of elem.Combine.
	//
	// Errors: those of CheckReduce and Device; ErrUnsupported, with nothing changed, for
	// elements that the device can't combine with bit-identical results, or that are not
	// aligned.
	Reduce(ctx context.Context, dst, src Span, t elem.Type, op elem.Op) error
}

// reducePiece is the number of bytes combined between two checks of the context, and the
// number staged through the host at a time.
const reducePiece = MiB

// Reduce sets dst = dst op src, element by element, for two spans on one device: by the
// device if it can, in place if the host can map its memory, and otherwise by copying
// pieces to the host and back.
//
// Errors: those of CheckReduce; those of Device.
func Reduce(ctx context.Context, dst, src Span, t elem.Type, op elem.Op) error {
	if dst.Mem == nil {
		return fmt.Errorf("combine into a span without memory: %w", ErrRange)
	}
	d := dst.Mem.Device()
	if err := CheckReduce(d, dst, src, t, op); err != nil {
		return err
	}
	if r, ok := d.(Reducer); ok {
		if err := r.Reduce(ctx, dst, src, t, op); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	if Aligned(t, dst, src) {
		if err := reduceMapped(ctx, dst, src, t, op); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	return reduceByHost(ctx, dst, src, t, op)
}

// CheckReduce returns an error unless two spans can be combined on a device. Every Reducer
// calls it first.
//
// Errors: elem.ErrType for elements that can't be combined, or if the length is not a
// multiple of the element size; ErrRange for spans that differ in length or overlap
// partially; those of Span.Check.
func CheckReduce(d Device, dst, src Span, t elem.Type, op elem.Op) error {
	if err := dst.Check(d); err != nil {
		return err
	}
	if err := src.Check(d); err != nil {
		return err
	}
	switch {
	case !t.Combines() || !op.Known():
		return fmt.Errorf("%v of %v on %s: %w", op, t, d.Info().Name, elem.ErrType)
	case uint64(dst.Len)%t.Size() != 0:
		return fmt.Errorf("%d bytes of %v on %s: %w", uint64(dst.Len), t, d.Info().Name, elem.ErrType)
	case dst.Len != src.Len:
		return fmt.Errorf("combine %v with %v on %s: %w", dst.Range, src.Range, d.Info().Name, ErrRange)
	case dst.Mem == src.Mem && dst.Off != src.Off && dst.Overlaps(src.Range):
		return fmt.Errorf("combine %v with %v of one memory on %s: %w", dst.Range, src.Range, d.Info().Name, ErrRange)
	}
	return nil
}

// CheckAligned is CheckReduce for a Reducer that can't combine elements at other positions
// than multiples of their size: they are ErrUnsupported.
func CheckAligned(d Device, dst, src Span, t elem.Type, op elem.Op) error {
	if err := CheckReduce(d, dst, src, t, op); err != nil {
		return err
	}
	if !Aligned(t, dst, src) {
		return fmt.Errorf("elements on %s are not aligned: %w", d.Info().Name, ErrUnsupported)
	}
	return nil
}

// Aligned reports whether the elements of all spans are at multiples of their size, as they
// are at the start of an allocation.
func Aligned(t elem.Type, spans ...Span) bool {
	for _, s := range spans {
		if uint64(s.Off)%t.Size() != 0 {
			return false
		}
	}
	return true
}

// reduceMapped combines in place, through views.
func reduceMapped(ctx context.Context, dst, src Span, t elem.Type, op elem.Op) error {
	to, err := MapHost(ctx, dst, ReadWrite)
	if err != nil {
		return err
	}
	defer to.Release()
	from, err := MapHost(ctx, src, ReadOnly)
	if err != nil {
		return err
	}
	defer from.Release()
	return CombinePieces(ctx, to.Bytes, from.Bytes, t, op)
}

// CombinePieces sets dst = dst op src in memory visible to the host, checking the context
// between two pieces. It is for implementations of Reducer.
func CombinePieces(ctx context.Context, dst, src []byte, t elem.Type, op elem.Op) error {
	for len(dst) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(dst), int(reducePiece))
		if err := elem.Combine(op, t, dst[:n], dst[:n], src[:n]); err != nil {
			return err
		}
		dst, src = dst[n:], src[n:]
	}
	return ctx.Err()
}

// reduceByHost copies pieces out, combines them and copies the results in.
func reduceByHost(ctx context.Context, dst, src Span, t elem.Type, op elem.Op) error {
	d := dst.Mem.Device()
	a, b := make([]byte, min(dst.Len, reducePiece)), make([]byte, min(dst.Len, reducePiece))
	for off := Size(0); off < dst.Len; off += reducePiece {
		n := min(reducePiece, dst.Len-off)
		to, err := dst.Sub(Offset(off), n)
		if err != nil {
			return err
		}
		from, err := src.Sub(Offset(off), n)
		if err != nil {
			return err
		}
		if err := errors.Join(d.CopyOut(ctx, a[:n], to), d.CopyOut(ctx, b[:n], from)); err != nil {
			return err
		}
		if err := elem.Combine(op, t, a[:n], a[:n], b[:n]); err != nil {
			return err
		}
		if err := d.CopyIn(ctx, to, a[:n]); err != nil {
			return err
		}
	}
	return ctx.Err()
}
