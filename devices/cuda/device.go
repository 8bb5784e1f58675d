package cuda

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

// device is a card.
type device struct {
	api     *api
	entry   entry
	info    devices.Info
	log     *zap.Logger
	context cuContext
	// units are the granularities of VMM memory, 0 where there is none.
	units units
	lanes lanes
	// pins are those of all devices of the driver.
	pins *pins.Table[*device]
	// kernels are those that elements are combined by.
	kernels kernels

	// epoch changes once, when the card fails; failure is why.
	epoch   atomic.Uint64
	failure atomic.Pointer[failure]

	// life is held for reading by every operation, and for writing by Close.
	life life.Life

	mu sync.Mutex
	// used counts allocated bytes, as the card rounds them.
	// +checklocks:mu
	used devices.Size
	// blocks are those that the driver still has.
	// +checklocks:mu
	blocks map[*block]struct{}

	linkMu sync.Mutex
	// links are the incarnations of other devices that this one reaches.
	// +checklocks:linkMu
	links map[devices.Epoch]struct{}

	openMu sync.Mutex
	// opened are the IPC handles that are open here. A driver may refuse to
	// open one twice.
	// +checklocks:openMu
	opened map[ipcHandle]*opened
	// exported are the IPC handles of this device's own memory.
	// +checklocks:openMu
	exported map[ipcHandle]struct{}
}

// failure is why a device is of no use any more.
type failure struct{ err error }

var (
	_ devices.Device     = (*device)(nil)
	_ devices.Pinner     = (*device)(nil)
	_ devices.PeerCopier = (*device)(nil)
	_ devices.Exporter   = (*device)(nil)
	_ devices.Importer   = (*device)(nil)
)

// newDevice takes the card's primary context.
func newDevice(r *Driver, a *api, e entry, size devices.Size) (*device, error) {
	d := &device{
		api: a, entry: e, info: e.info(size), pins: &r.pins,
		log:      r.log.With(zap.String("device", string(e.info(size).Name))),
		lanes:    newLanes(),
		blocks:   map[*block]struct{}{},
		links:    map[devices.Epoch]struct{}{},
		opened:   map[ipcHandle]*opened{},
		exported: map[ipcHandle]struct{}{},
	}
	d.epoch.Store(uint64(devices.NextEpoch(0)))
	var err error
	if d.context, err = a.retain(e.device); err != nil {
		return nil, err
	}
	if e.virtual {
		err = d.on(func() (err error) {
			d.units, err = d.readUnits()
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, a.release(e.device))
	}
	return d, nil
}

// Info returns the facts.
func (d *device) Info() devices.Info { return d.info }

// Epoch returns the incarnation, which lasts from Open to Close or to the
// card's failure.
func (d *device) Epoch() devices.Epoch { return devices.Epoch(d.epoch.Load()) }

// in calls fn on a thread whose context is c.
func (a *api) in(c cuContext, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Nothing is restored: every thread sets its own.
	if err := a.setCurrent(c); err != nil {
		return err
	}
	return fn()
}

// on calls fn with the device's context, unless the device has failed. Every
// call that needs a context is made in here, and on is not called inside of on.
func (d *device) on(fn func() error) error {
	if err := d.failed(); err != nil {
		return err
	}
	err := d.api.in(d.context, fn)
	if codeOf(err).Sticky() {
		d.fail(err)
	}
	return err
}

// failed is an ErrDevice once the card has failed.
func (d *device) failed() error {
	f := d.failure.Load()
	if f == nil {
		return nil
	}
	return fmt.Errorf("%s has failed, and stays so until the next mount: %w", d.info.Name, f.err)
}

// fail ends the use of the card.
func (d *device) fail(err error) {
	if !d.failure.CompareAndSwap(nil, &failure{err}) {
		return
	}
	d.epoch.Store(uint64(devices.NextEpoch(d.Epoch())))
	d.log.Error("device has failed, its memory is lost", zap.Error(err))
}

// Usage tells what this device has allocated, and how much the card has left,
// whoever uses the rest. A card that has failed has nothing free.
func (d *device) Usage() (devices.Usage, error) {
	leave, err := d.life.Enter(context.Background(), d)
	if err != nil {
		return devices.Usage{}, err
	}
	defer leave()
	var free devices.Size
	if d.failed() == nil {
		if free, err = d.free(); err != nil {
			return devices.Usage{}, fmt.Errorf("free memory of %s: %w", d.info.Name, err)
		}
	}
	d.mu.Lock()
	used := d.used
	d.mu.Unlock()
	return devices.Usage{Total: d.info.Total, Used: used, Free: min(free, d.info.Total-used)}, nil
}

// free returns the memory that the card has left for all programs.
func (d *device) free() (free devices.Size, err error) {
	err = d.on(func() (err error) {
		free, err = d.api.memInfo()
		return err
	})
	return free, err
}

// Close waits for the operations in flight and gives everything back, except
// of a card that has failed.
func (d *device) Close() error {
	return d.life.Close(d.giveBack)
}

// giveBack gives back what the device has once it is closed.
func (d *device) giveBack() error {
	unpinned := d.pins.Leave(d)
	if d.failed() != nil {
		return unpinned
	}
	d.mu.Lock()
	left := make([]*block, 0, len(d.blocks))
	for b := range d.blocks {
		left = append(left, b)
	}
	clear(d.blocks)
	d.mu.Unlock()
	err := d.on(func() error {
		var errs []error
		for _, b := range left {
			errs = append(errs, b.give())
		}
		return errors.Join(append(errs, unpinned, d.lanes.clear(d.api), d.kernels.clear(d.api))...)
	})
	if d.failed() == nil {
		err = errors.Join(err, d.api.release(d.entry.device))
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", d.info.Name, err)
	}
	return nil
}
