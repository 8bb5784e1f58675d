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
	session

	mu sync.Mutex
	// idle holds the streams that are not in use.
	// +checklocks:mu
	idle []stream
}

// newDevice takes ownership of an acquired binding, and returns the device with the
// abilities that its table provides.
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

// session implements card.Runtime for an open device.
type session struct {
	t       *table
	binding binding
}

var _ card.Runtime = session{}

// Bind makes the device current for the calling thread.
func (s session) Bind() error { return s.t.set(s.binding) }

// Retain acquires the device once more.
func (s session) Retain() error {
	_, err := s.t.acquire(s.binding.ordinal)
	return err
}

// Release undoes one acquisition.
func (s session) Release() error { return s.t.release(s.binding) }

// FreeMemory returns the memory that the card has left for all programs, in bytes.
func (s session) FreeMemory() (devices.Size, error) {
	n, _, err := s.t.memory()
	return devices.Size(n), err
}

// Sticky reports whether the runtime refuses all work after an error.
func (s session) Sticky(err error) bool { return isCode(err, s.t.codes.fatal...) }

// OutOfMemory reports whether an error is a lack of memory.
func (s session) OutOfMemory(err error) bool { return isCode(err, s.t.codes.outOfMemory...) }

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
