package faulty

import (
	"context"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// AllocIn allocates memory of the inner device in a file and wraps it. It fails under the
// same faults as Alloc, and as devices.Lasting allows if the inner device can't do it.
func (c *core) AllocIn(ctx context.Context, f *os.File, n devices.Size) (*devices.Memory, error) {
	able, ok := devices.LastingOf(c.inner)
	if !ok {
		return nil, c.notLasting()
	}
	if err := c.ask(Alloc, n, true); err != nil {
		return nil, err
	}
	inner, err := able.AllocIn(ctx, f, n)
	if err != nil {
		return nil, err
	}
	return c.wrap(inner), nil
}

// Resume continues an epoch of the inner device.
func (c *core) Resume(e devices.Epoch) error {
	able, ok := devices.LastingOf(c.inner)
	if !ok {
		return c.notLasting()
	}
	return able.Resume(e)
}

// LastingUnit returns that of the inner device, 0 if that has none.
func (c *core) LastingUnit() devices.Size {
	if able, ok := devices.LastingMakerOf(c.inner); ok {
		return able.LastingUnit()
	}
	return 0
}

// MakeLasting makes a descriptor of memory of the inner device.
func (c *core) MakeLasting(ctx context.Context, n devices.Size) (*os.File, error) {
	able, ok := devices.LastingMakerOf(c.inner)
	if !ok {
		return nil, c.notLasting()
	}
	return able.MakeLasting(ctx, n)
}

func (c *core) notLasting() error {
	return fmt.Errorf("memory of %s in files: %w", c.inner.Info().Name, devices.ErrUnsupported)
}
