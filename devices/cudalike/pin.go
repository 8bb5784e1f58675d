package cudalike

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
)

// pinner is the ability to page-lock host memory.
type pinner struct{ d *device }

var _ devices.Pinner = pinner{}

// PinHost locks p. What another device of this driver has locked is used as it
// is, and what overlaps with that is refused, as is what others in this process
// have locked: how much of p that is no runtime tells, and it may end at any
// time.
func (p pinner) PinHost(mem []byte) (unpin func(), err error) {
	d := p.d
	leave, err := d.life.Enter(context.Background(), d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	if align := d.t.pin.align; len(mem) == 0 || addressOf(mem)%align != 0 || uintptr(len(mem))%align != 0 {
		return nil, fmt.Errorf("pin %d bytes at %#x on %s: both must be multiples of %d: %w",
			len(mem), addressOf(mem), d.info.Name, align, devices.ErrUnsupported)
	}
	undo, err := d.pins.Pin(d, mem, func() (func() error, error) { return d.register(mem) })
	if err != nil {
		return nil, fmt.Errorf("pin %d bytes on %s: %w", len(mem), d.info.Name, err)
	}
	return sync.OnceFunc(func() {
		if err := undo(); err != nil {
			d.log.Warn("host memory not unpinned", zap.Error(err))
		}
	}), nil
}

// register locks host memory for a device, which stays ready as long: another
// device may use the memory after this one was closed.
func (d *device) register(mem []byte) (unregister func() error, err error) {
	b, err := acquire(d.t, d.binding.ordinal)
	if err != nil {
		return nil, err
	}
	if err = d.on(func() error { return d.t.pin.register(mem) }); err != nil {
		return nil, errors.Join(err, d.on(func() error { return d.t.release(b) }))
	}
	return func() error {
		if d.failed() != nil {
			return nil
		}
		return d.on(func() error { return errors.Join(d.t.pin.unregister(mem), d.t.release(b)) })
	}, nil
}
