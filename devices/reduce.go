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
	return byHost(ctx, dst, src, func(a, b []byte) error { return elem.Combine(op, t, a, a, b) })
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
	return pieces(ctx, Size(len(dst)), func(off, end Size) error {
		return elem.Combine(op, t, dst[off:end], dst[off:end], src[off:end])
	})
}

// pieces calls fn for each piece of n bytes, checking the context in between.
func pieces(ctx context.Context, n Size, fn func(off, end Size) error) error {
	for off := Size(0); off < n; off += reducePiece {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(off, min(off+reducePiece, n)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// byHost copies pieces of two spans of one length out, has fn change those of dst, and
// copies these in. For a span and itself there is one copy.
func byHost(ctx context.Context, dst, src Span, fn func(dst, src []byte) error) error {
	d := dst.Mem.Device()
	a := make([]byte, min(dst.Len, reducePiece))
	b := a
	if src != dst {
		b = make([]byte, len(a))
	}
	return pieces(ctx, dst.Len, func(off, end Size) error {
		n := end - off
		to, err := dst.Sub(Offset(off), n)
		if err == nil {
			err = d.CopyOut(ctx, a[:n], to)
		}
		if err == nil && src != dst {
			from := Span{Mem: src.Mem, Range: Range{Off: src.Off + Offset(off), Len: n}}
			err = d.CopyOut(ctx, b[:n], from)
		}
		if err == nil {
			err = fn(a[:n], b[:n])
		}
		if err != nil {
			return err
		}
		return d.CopyIn(ctx, to, a[:n])
	})
}
