package devices

import (
	"context"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// Reducer is the ability to combine elements on the device.
type Reducer interface {
	// Reduce sets dst = dst op src, element by element; elem.Avg adds. The spans
	// are as long as each other, and the same or apart. Both memories must be
	// this device's. Its results are those of elem.Combine.
	Reduce(ctx context.Context, dst, src Span, t elem.Type, op elem.Op) error
}

// Reduce sets dst = dst op src, element by element, where both are on one
// device: by the device if it can, in place where the host can map its memory,
// and otherwise by copying to the host and back in pieces.
//
// Errors: elem.ErrType; those of Device.
func Reduce(ctx context.Context, dst, src Span, t elem.Type, op elem.Op) error {
	panic("devices: not written yet")
}
