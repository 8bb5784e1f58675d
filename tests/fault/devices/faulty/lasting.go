package faulty

import (
	"context"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
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
	if c.unit > 0 {
		if err := memfd.Check(f, c.whole(n)); err != nil {
			return nil, fmt.Errorf("%w: %w", devices.ErrHandle, err)
		}
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

// whole returns n in whole units of the wrapper's own memory.
func (c *core) whole(n devices.Size) int64 { return int64((n + c.unit - 1) / c.unit * c.unit) }

// LastingUnit returns that of WrapOwn, or of the inner device, 0 if that has none.
func (c *core) LastingUnit() devices.Size {
	if c.unit > 0 {
		return c.unit
	}
	if able, ok := devices.LastingMakerOf(c.inner); ok {
		return able.LastingUnit()
	}
	return 0
}

// MakeLasting makes a descriptor of memory of the wrapper or of the inner device. It fails
// under the same faults as Alloc.
func (c *core) MakeLasting(ctx context.Context, n devices.Size) (*os.File, error) {
	if err := c.ask(Alloc, n, true); err != nil {
		return nil, err
	}
	if c.unit > 0 {
		return memfd.Create("own", c.whole(n))
	}
	able, ok := devices.LastingMakerOf(c.inner)
	if !ok {
		return nil, c.notLasting()
	}
	return able.MakeLasting(ctx, n)
}

func (c *core) notLasting() error {
	return fmt.Errorf("memory of %s in files: %w", c.inner.Info().Name, devices.ErrUnsupported)
}
