package cudalike

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/life"
	"github.com/hmcfs/hmcfs/devices/internal/pins"
)

// device is one opened device, without the abilities that not all have.
type device struct {
	t       *table
	binding binding
	info    devices.Info
	log     *zap.Logger
	// serial orders devices for locks: the first that was opened is first.
	serial uint64
	// self is the device as its users know it, set once before any use.
	self devices.Device

	epoch atomic.Uint64
	peers peers
	// imports are the handles of other processes that are open.
	imports imports
	// pins are those of all devices of the driver.
	pins *pins.Table[*device]

	// life is held for reading by every operation, and for writing by Close.
	life life.Life

	mu sync.Mutex
	// +checklocks:mu
	used devices.Size
	// blocks are those that the runtime still has.
	// +checklocks:mu
	blocks map[*block]struct{}
	// idle are the streams that nobody uses now.
	// +checklocks:mu
	idle []stream
	// failure is the error that made the runtime refuse all work.
	// +checklocks:mu
	failure error
}

// newDevice owns what the binding was acquired with.
func (d *Driver) newDevice(t *table, b binding, info devices.Info) *device {
	dev := &device{
		t: t, binding: b, info: info, serial: d.opened.Add(1),
		pins:   &d.pins,
		log:    d.log.With(zap.String("device", string(info.Name))),
		blocks: map[*block]struct{}{},
	}
	dev.imports.open = map[string]*mapping{}
	dev.peers = peers{reach: map[int]bool{}, enabled: map[int]bool{}}
	dev.epoch.Store(uint64(devices.NextEpoch(0)))
	return dev
}

// Info returns the facts.
func (d *device) Info() devices.Info { return d.info }

// Epoch returns the incarnation, which lasts until the device fails or is
// closed.
func (d *device) Epoch() devices.Epoch { return devices.Epoch(d.epoch.Load()) }

// on calls fn on a thread that works with the device. Every call that is about
// a device goes through here.
func (d *device) on(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := d.t.set(d.binding)
	if err == nil {
		err = fn()
	}
	if isCode(err, d.t.codes.fatal...) {
		return d.fail(err)
	}
	return err
}

// fail marks the device as failed by an error after which the runtime refuses
// all work.
func (d *device) fail(cause error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil {
		d.failure = fmt.Errorf("%s has failed, its files are lost until hmcfs is mounted again: %w", d.info.Name, cause)
		d.epoch.Store(uint64(devices.NextEpoch(devices.Epoch(d.epoch.Load()))))
		d.log.Warn("device failed", zap.Error(cause))
	}
	return d.failure
}

// failed is why the device takes no more work, nil where it does.
func (d *device) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

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
	err = d.on(func() (err error) {
		s, err = d.t.newStream()
		return err
	})
	return s, err
}

// Usage tells what this device has allocated, and how much is left of it and
// of the card.
func (d *device) Usage() (devices.Usage, error) {
	leave, err := d.life.Enter(context.Background(), d.self)
	if err != nil {
		return devices.Usage{}, err
	}
	defer leave()
	d.mu.Lock()
	used := d.used
	d.mu.Unlock()
	free, err := d.left()
	if err != nil {
		return devices.Usage{}, err
	}
	return devices.Usage{Total: d.info.Total, Used: used, Free: min(d.info.Total-used, free)}, nil
}

// left returns the free part of the card, whoever has the rest. A failed device
// has nothing.
func (d *device) left() (free devices.Size, err error) {
	if d.failed() != nil {
		return 0, nil
	}
	err = d.on(func() error {
		n, _, merr := d.t.memory()
		free = devices.Size(n)
		return merr
	})
	return free, err
}

// Close waits for the operations in flight and gives everything back. Of a
// failed device the runtime takes nothing back, and is not asked to.
func (d *device) Close() error {
	return d.life.Close(d.giveAll)
}

// giveAll gives back what the device has once it is closed.
func (d *device) giveAll() error {
	d.mu.Lock()
	blocks, idle := d.blocks, d.idle
	d.blocks, d.idle, d.used = map[*block]struct{}{}, nil, 0
	failed := d.failure != nil
	d.mu.Unlock()
	unpinned := d.pins.Leave(d)
	if failed {
		return unpinned
	}
	errs := []error{d.closeImports(), unpinned}
	for b := range blocks {
		errs = append(errs, d.freeBlock(b))
	}
	for _, s := range idle {
		errs = append(errs, d.on(func() error { return d.t.endStream(s) }))
	}
	errs = append(errs, d.on(func() error { return d.t.release(d.binding) }))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", d.info.Name, err)
	}
	return nil
}
