package faulty

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// ExportKinds lists the kinds that the inner device supports; none if it cannot export.
func (c *core) ExportKinds() []devices.HandleKind { return devices.ExportKinds(c.inner) }

// AllocShared allocates memory of the inner device and wraps it. It fails under the same faults
// as Alloc.
func (c *core) AllocShared(ctx context.Context, n devices.Size, kind devices.HandleKind) (*devices.Memory, error) {
	if err := c.ask(Alloc, n, true); err != nil {
		return nil, err
	}
	inner, err := devices.AllocShared(ctx, c.inner, n, kind)
	if err != nil {
		return nil, err
	}
	return c.wrap(inner), nil
}

// Export exports a memory of the inner device.
func (c *core) Export(ctx context.Context, m *devices.Memory) (devices.Handle, error) {
	s, err := c.open(m.All())
	if err != nil {
		return devices.Handle{}, err
	}
	if err := c.ask(Export, m.Size(), false); err != nil {
		return devices.Handle{}, err
	}
	x, ok := c.inner.(devices.Exporter)
	if !ok {
		return devices.Handle{}, fmt.Errorf("export memory of %s: %w", c.inner.Info().Name, devices.ErrUnsupported)
	}
	return x.Export(ctx, s.Mem)
}

// Import opens memory of another process on the inner device and wraps it.
func (c *core) Import(ctx context.Context, h devices.Handle) (*devices.Memory, error) {
	if err := c.ask(Import, h.Size, false); err != nil {
		return nil, err
	}
	inner, err := devices.Import(ctx, c.inner, h)
	if err != nil {
		return nil, err
	}
	return c.wrap(inner), nil
}

// wrap returns the wrapper's memory around one of the inner device.
func (c *core) wrap(inner *devices.Memory) *devices.Memory {
	return devices.NewMemory(devices.MemorySpec{
		Device: c.self,
		Size:   inner.Size(),
		Epoch:  inner.Epoch(),
		Handle: handle{inner: inner},
		Free: func() error {
			return errors.Join(c.ask(Free, inner.Size(), false), inner.Release())
		},
	})
}
