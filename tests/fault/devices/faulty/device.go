package faulty

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// Wrap returns a device that calls the hook before every operation of dev. It owns dev: closing
// it closes dev. A nil hook lets everything happen.
func Wrap(dev devices.Device, hook Hook) devices.Device {
	c := &core{inner: dev, hook: hook}
	c.self = c.with(abilitiesOf(dev))
	return c.self
}

// WrapOwn is Wrap for a Lasting device that uses files of the host. The wrapper has memory of
// its own, in whole units: descriptors that it makes itself, as the driver of a card does.
func WrapOwn(dev devices.Device, hook Hook, unit devices.Size) devices.Device {
	c := &core{inner: dev, hook: hook, unit: unit}
	c.self = c.with(abilitiesOf(dev))
	return c.self
}

// core is the wrapper without optional abilities.
type core struct {
	inner devices.Device
	hook  Hook
	unit  devices.Size // of WrapOwn
	seq   atomic.Uint64
	// self is core with the abilities of inner: the device that memories report as theirs.
	self devices.Device
}

// handle is the handle of the wrapper's memories.
type handle struct{ inner *devices.Memory }

// Unwrap returns the wrapped device.
func (c *core) Unwrap() devices.Device { return c.inner }

// ask calls the hook.
func (c *core) ask(kind Kind, bytes devices.Size, write bool) error {
	return c.askOp(Op{Kind: kind, Bytes: bytes, Write: write})
}

// askOp is like ask, for an operation with further details.
func (c *core) askOp(op Op) error {
	op.Seq = c.seq.Add(1)
	if c.hook == nil {
		return nil
	}
	name, kind := c.inner.Info().Name, op.Kind
	op.Device = name
	err := c.hook(op)
	switch {
	case err == nil:
		return nil
	case known(err):
		return fmt.Errorf("%v on %s: %w", kind, name, err)
	}
	return fmt.Errorf("%v on %s: %w: %w", kind, name, devices.ErrDevice, err)
}

// open checks a span of the wrapper and returns it as one of the inner device.
func (c *core) open(s devices.Span) (devices.Span, error) {
	if err := s.Check(c.self); err != nil {
		return devices.Span{}, err
	}
	h, ok := s.Mem.Handle().(handle)
	if !ok {
		return devices.Span{}, fmt.Errorf("memory with a foreign handle: %w", devices.ErrRange)
	}
	return devices.Span{Mem: h.inner, Range: s.Range}, nil
}

// Info returns the facts of the inner device.
func (c *core) Info() devices.Info { return c.inner.Info() }

// Epoch returns the epoch of the inner device.
func (c *core) Epoch() devices.Epoch { return c.inner.Epoch() }

// Alloc allocates memory of the inner device and wraps it.
func (c *core) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	if err := c.ask(Alloc, n, true); err != nil {
		return nil, err
	}
	inner, err := c.inner.Alloc(ctx, n)
	if err != nil {
		return nil, err
	}
	return c.wrap(inner), nil
}

// CopyIn copies host to device.
func (c *core) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	to, err := c.open(dst)
	if err != nil {
		return err
	}
	if err := c.askOp(Op{Kind: CopyIn, Bytes: dst.Len, Write: true, Host: src}); err != nil {
		return err
	}
	return c.inner.CopyIn(ctx, to, src)
}

// CopyOut copies device to host.
func (c *core) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	from, err := c.open(src)
	if err != nil {
		return err
	}
	if err := c.askOp(Op{Kind: CopyOut, Bytes: src.Len, Host: dst}); err != nil {
		return err
	}
	return c.inner.CopyOut(ctx, dst, from)
}

// Copy copies inside the device.
func (c *core) Copy(ctx context.Context, dst, src devices.Span) error {
	to, err := c.open(dst)
	if err != nil {
		return err
	}
	from, err := c.open(src)
	if err != nil {
		return err
	}
	if err := c.ask(Copy, dst.Len, true); err != nil {
		return err
	}
	return c.inner.Copy(ctx, to, from)
}

// Fill sets bytes.
func (c *core) Fill(ctx context.Context, dst devices.Span, value byte) error {
	to, err := c.open(dst)
	if err != nil {
		return err
	}
	if err := c.ask(Fill, dst.Len, true); err != nil {
		return err
	}
	return c.inner.Fill(ctx, to, value)
}

// Reduce combines elements on the inner device. If that lacks the ability, it returns
// devices.ErrUnsupported, which callers treat in the same way.
func (c *core) Reduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) error {
	to, err := c.open(dst)
	if err != nil {
		return err
	}
	from, err := c.open(src)
	if err != nil {
		return err
	}
	able, ok := c.inner.(devices.Reducer)
	if !ok {
		return fmt.Errorf("%v on %s: %w", Reduce, c.inner.Info().Name, devices.ErrUnsupported)
	}
	if err := c.ask(Reduce, dst.Len, true); err != nil {
		return err
	}
	return able.Reduce(ctx, to, from, t, op)
}

// Usage returns the usage of the inner device.
func (c *core) Usage() (devices.Usage, error) {
	if err := c.ask(Usage, 0, false); err != nil {
		return devices.Usage{}, err
	}
	return c.inner.Usage()
}

// Close closes the inner device. It is never made to fail.
func (c *core) Close() error { return c.inner.Close() }
