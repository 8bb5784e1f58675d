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

func (c *core) notLasting() error {
	return fmt.Errorf("memory of %s in files: %w", c.inner.Info().Name, devices.ErrUnsupported)
}
