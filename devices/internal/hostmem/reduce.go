package hostmem

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// Reduce sets dst = dst op src, element by element, on d.
func Reduce(ctx context.Context, d devices.Device, r Reduction, pace Pace) error {
	if err := devices.CheckAligned(d, r.Dst, r.Src, r.Type, r.Op); err != nil {
		return err
	}
	to, block, err := enter(d, r.Dst)
	if err != nil {
		return err
	}
	defer block.Leave()
	from, block, err := enter(d, r.Src)
	if err != nil {
		return err
	}
	defer block.Leave()
	var failed error
	err = pieces(ctx, len(to), false, pace, func(off, end int) {
		if failed == nil {
			failed = elem.Combine(r.Op, r.Type, to[off:end], to[off:end], from[off:end])
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// Reduction holds the arguments of devices.Reducer.
type Reduction struct {
	Dst, Src devices.Span
	Type     elem.Type
	Op       elem.Op
}
