package cudalike

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// Alloc allocates memory of the runtime, which is backed immediately.
func (d *device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	return d.Take(ctx, n, n, d.newBlock, nil)
}

// newBlock has the runtime allocate n bytes.
func (d *device) newBlock(n devices.Size) (*card.Block, error) {
	at, err := d.t.alloc(uint64(n))
	if err != nil {
		return nil, err
	}
	return &card.Block{Addr: at, Size: n, Give: func() error { return d.t.free(at) }}, nil
}
