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
	if err := CheckReduce(dst.Mem.Device(), dst, dst, t, elem.Avg); err != nil {
		return err
	}
	if Aligned(t, dst) {
		if err := divideMapped(ctx, dst, t, n); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	return byHost(ctx, dst, dst, func(p, _ []byte) error { return elem.Divide(t, p, n) })
}

func divideMapped(ctx context.Context, dst Span, t elem.Type, n uint64) error {
	view, err := MapHost(ctx, dst, ReadWrite)
	if err != nil {
		return err
	}
	defer view.Release()
	return pieces(ctx, dst.Len, func(off, end Size) error { return elem.Divide(t, view.Bytes[off:end], n) })
}
