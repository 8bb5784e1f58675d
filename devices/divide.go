package devices

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// Divide sets dst = dst / n, element by element: the last step of elem.Avg. The host
// computes it, in place if it can map the device's memory, and otherwise by copying pieces
// to the host and back.
//
// Errors: elem.ErrType; those of Device.
func Divide(ctx context.Context, dst Span, t elem.Type, n uint64) error {
	if err := elem.Divide(t, nil, n); err != nil {
		return err
	}
	if dst.Mem == nil {
		return fmt.Errorf("divide a span without memory: %w", ErrRange)
	}
	d := dst.Mem.Device()
	if err := CheckReduce(d, dst, dst, t, elem.Avg); err != nil {
		return err
	}
	if Aligned(t, dst) {
		if err := divideMapped(ctx, dst, t, n); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	buf := make([]byte, min(dst.Len, reducePiece))
	for off := Size(0); off < dst.Len; off += reducePiece {
		piece := buf[:min(reducePiece, dst.Len-off)]
		part, err := dst.Sub(Offset(off), Size(len(piece)))
		if err != nil {
			return err
		}
		if err := d.CopyOut(ctx, piece, part); err != nil {
			return err
		}
		if err := elem.Divide(t, piece, n); err != nil {
			return err
		}
		if err := d.CopyIn(ctx, part, piece); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func divideMapped(ctx context.Context, dst Span, t elem.Type, n uint64) error {
	view, err := MapHost(ctx, dst, ReadWrite)
	if err != nil {
		return err
	}
	defer view.Release()
	for p := view.Bytes; len(p) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := p[:min(len(p), int(reducePiece))]
		if err := elem.Divide(t, piece, n); err != nil {
			return err
		}
		p = p[len(piece):]
	}
	return ctx.Err()
}
