package cuda

import (
	"context"
	"errors"
	"sync"
)

// PinHost registers p with the driver, for all cards. p should not be Go's
// memory, which the collector may give to others once unpin was called, and
// stays registered in whole pages. What another device of this driver has
// registered is used as it is, and what overlaps with that is refused, as is
// what others in this process have registered: how much of p that is the driver
// does not tell, and it may end at any time. Close unpins what is left.
func (d *device) PinHost(p []byte) (unpin func(), err error) {
	leave, err := d.life.Enter(context.Background(), d)
	if err != nil {
		return nil, err
	}
	defer leave()
	if len(p) == 0 {
		return func() {}, nil
	}
	undo, err := d.pins.Pin(d, p, func() (func() error, error) { return d.register(p) })
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { d.warn("host memory not unpinned", undo()) }), nil
}

// register registers host memory in the device's context, which lasts as long:
// another device may use the memory after this one was closed.
func (d *device) register(p []byte) (unregister func() error, err error) {
	err = d.on(func() error {
		if _, rerr := d.api.retain(d.entry.device); rerr != nil {
			return rerr
		}
		if rerr := d.api.hostRegister(p); rerr != nil {
			return errors.Join(rerr, d.api.release(d.entry.device))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		if d.failed() != nil {
			return nil
		}
		err := d.on(func() error { return d.api.hostUnregister(p) })
		if d.failed() == nil {
			err = errors.Join(err, d.api.release(d.entry.device))
		}
		return err
	}, nil
}
