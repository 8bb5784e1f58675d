package cudalike

import (
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// device is one opened device, without the abilities that not all have.
type device struct {
	*card.Card
	session

	mu sync.Mutex
	// idle are the streams that nobody uses now.
	// +checklocks:mu
	idle []stream
}

// newDevice owns what the binding was acquired with, and returns the device with
// the abilities that its table has.
func (d *Driver) newDevice(t *table, b binding, info devices.Info) devices.Device {
	dev := &device{session: session{t: t, binding: b}}
	dev.Card = card.New(card.Spec{
		Info: info, Runtime: dev.session, Set: &d.cards, Explain: true,
		Log: d.log.With(zap.String("device", string(info.Name))), Clear: dev.clear,
	})
	self := dev.combine()
	dev.SetSelf(self)
	return self
}

// session is a device that is open, and its runtime.
type session struct {
	t       *table
	binding binding
}

var _ card.Runtime = session{}

// Bind makes the device the calling thread's.
func (s session) Bind() error { return s.t.set(s.binding) }

// Retain acquires the device once more.
func (s session) Retain() error {
	_, err := s.t.acquire(s.binding.ordinal)
	return err
}

// Release ends what acquiring it began.
func (s session) Release() error { return s.t.release(s.binding) }

// FreeMemory returns what the card has left for all programs.
func (s session) FreeMemory() (devices.Size, error) {
	n, _, err := s.t.memory()
	return devices.Size(n), err
}

// Sticky reports whether the runtime refuses all work after an error.
func (s session) Sticky(err error) bool { return isCode(err, s.t.codes.fatal...) }

// OutOfMemory reports whether an error says that there is no memory.
func (s session) OutOfMemory(err error) bool { return isCode(err, s.t.codes.outOfMemory...) }

// withStream calls fn with a stream that nobody else uses.
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

// takeStream returns a stream that is idle, or a new one.
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

// clear gives the streams back. None is in use.
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
