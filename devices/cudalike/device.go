package cudalike

import (
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// device is one opened device, without the optional abilities.
type device struct {
	*card.Card
	t       *table
	binding binding

	mu sync.Mutex
	// idle holds the streams that are not in use.
	// +checklocks:mu
	idle []stream
}

// newDevice takes ownership of an acquired binding, and returns the device with the
// abilities that its table provides.
func (d *Driver) newDevice(t *table, b binding, info devices.Info) devices.Device {
	dev := &device{t: t, binding: b}
	dev.Card = card.New(card.Spec{
		Info: info, Set: &d.cards, Explain: true,
		Log: d.log.With(zap.String("device", string(info.Name))), Clear: dev.clear,
		Runtime: card.Runtime{
			Bind:    func() error { return t.set(b) },
			Retain:  func() error { _, err := t.acquire(b.ordinal); return err },
			Release: func() error { return t.release(b) },
			FreeMemory: func() (devices.Size, error) {
				free, _, err := t.memory()
				return free, err
			},
			Sticky: t.codes.sticky, OutOfMemory: t.codes.noMemory,
		},
	})
	self := dev.combine()
	dev.SetSelf(self)
	return self
}

// withStream calls fn with a stream for its exclusive use.
func (d *device) withStream(fn func(s stream) error) error {
	s, err := d.takeStream()
	if err != nil {
		return err
	}
	defer func() {
		d.mu.Lock()
		d.idle = append(d.idle, s)
		d.mu.Unlock()
	}()
	return fn(s)
}

// takeStream returns an idle stream, or a new one.
func (d *device) takeStream() (s stream, err error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		s, d.idle = d.idle[n-1], d.idle[:n-1]
		d.mu.Unlock()
		return s, nil
	}
	d.mu.Unlock()
	err = d.On(func() (err error) {
		s, err = d.t.newStream()
		return err
	})
	return s, err
}

// clear destroys the streams. None may be in use.
func (d *device) clear() error {
	d.mu.Lock()
	idle := d.idle
	d.idle = nil
	d.mu.Unlock()
	var errs []error
	for _, s := range idle {
		errs = append(errs, d.On(func() error { return d.t.endStream(s) }))
	}
	return errors.Join(errs...)
}
