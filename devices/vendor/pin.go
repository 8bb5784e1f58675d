package vendor

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

// pins is the host memory that a device keeps locked.
type pins struct {
	mu sync.Mutex
	// held is by number, in the order of locking.
	// +checklocks:mu
	held map[uint64][]byte
	// +checklocks:mu
	last uint64
}

var _ devices.Pinner = pinner{}

// PinHost locks p. Memory that is locked already, by whomever, stays so as
// long as they want it; unpin does nothing then.
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
	err = d.on(func() error { return d.t.pin.register(mem) })
	if err != nil {
		if tolerate(err, d.t.codes.pinned) == nil {
			return func() {}, nil
		}
		return nil, fmt.Errorf("pin %d bytes on %s: %w", len(mem), d.info.Name, err)
	}
	d.pins.mu.Lock()
	defer d.pins.mu.Unlock()
	d.pins.last++
	number := d.pins.last
	d.pins.held[number] = mem
	return func() { d.unpin(number) }, nil
}

// unpin ends a lock, unless Close has done so.
func (d *device) unpin(number uint64) {
	d.life.RLock()
	defer d.life.RUnlock()
	d.pins.mu.Lock()
	mem, held := d.pins.held[number]
	delete(d.pins.held, number)
	d.pins.mu.Unlock()
	if !held || d.failed() != nil {
		return
	}
	if err := d.on(func() error { return d.t.pin.unregister(mem) }); err != nil {
		d.log.Warn("host memory not unpinned", zap.Error(err))
	}
}

// unpinAll ends all locks of a device that is being closed.
func (d *device) unpinAll() error {
	d.pins.mu.Lock()
	defer d.pins.mu.Unlock()
	var errs []error
	for _, mem := range d.pins.held {
		errs = append(errs, d.on(func() error { return d.t.pin.unregister(mem) }))
	}
	clear(d.pins.held)
	return errors.Join(errs...)
}
