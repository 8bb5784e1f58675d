package cuda

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// virtualFrom is the size, in bytes, from which memory is mapped physical memory (VMM). For
// smaller allocations rounding would waste too much.
const virtualFrom = 16 * devices.MiB

// Alloc allocates memory on the card immediately.
func (d *device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	if d.entry.virtual && n >= virtualFrom {
		// If only the rounded size does not fit, plain memory may.
		if whole := card.RoundUp(n, d.units.plain); whole >= n && whole <= d.Left() {
			return d.Take(ctx, n, whole, d.newVirtual, nil)
		}
	}
	return d.Take(ctx, n, n, d.newPlain, nil)
}

// newPlain allocates memory with cuMemAlloc.
func (d *device) newPlain(n devices.Size) (*card.Block, error) {
	p, err := d.api.alloc(n)
	if err != nil {
		return nil, err
	}
	return &card.Block{Addr: p, Size: n, Give: func() error { return d.api.free(p) }}, nil
}
