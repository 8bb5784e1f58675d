package opencl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/life"
)

// Pieces of work, between which the context is checked.
const (
	sharedPiece = 64 * devices.MiB  // moved inside memory that the host shares
	devicePiece = 512 * devices.MiB // moved inside a device's own memory
)

// device is an OpenCL device that copies all bytes by commands. mappedDevice wraps it if
// its memory is mapped.
type device struct {
	api    *api
	entry  entry
	info   devices.Info
	epoch  devices.Epoch
	system system
	log    *zap.Logger
	// self is the device as its users know it, commit makes the driver allocate the memory
	// of a new buffer. Both are set once, before any use.
	self   devices.Device
	commit func(context.Context, *buffer) error

	context contextID
	// Each direction has a queue of its own, so that they overlap.
	in     queueID
	out    queueID
	within queueID

	gate    gate
	kernels kernels

	// life is held for reading by every operation, and for writing by Close.
	life life.Life

	mu sync.Mutex
	// +checklocks:mu
	used devices.Size
	// buffers are the buffers that the driver still holds.
	// +checklocks:mu
	buffers map[*buffer]struct{}
	// done is set once the context and the queues have been released.
	// +checklocks:mu
	done bool
}

// newDevice creates the context and the queues.
func newDevice(a *api, e entry, info devices.Info, d *Driver) (dev *device, err error) {
	dev = &device{
		api: a, entry: e, info: info, system: d.system,
		log:     d.log.With(zap.String("device", string(info.Name))),
		epoch:   devices.NextEpoch(0),
		buffers: map[*buffer]struct{}{},
	}
	dev.commit = dev.touch
	if dev.context, err = a.createContext(e.id); err != nil {
		return nil, err
	}
	for _, q := range []*queueID{&dev.in, &dev.out, &dev.within} {
		if *q, err = a.createQueue(dev.context, e.id); err != nil {
			return nil, errors.Join(err, dev.releaseAll())
		}
	}
	return dev, nil
}

// Info returns the description of the device.
func (d *device) Info() devices.Info { return d.info }

// Epoch returns the incarnation, which lasts from Open to Close.
func (d *device) Epoch() devices.Epoch { return d.epoch }

// buffer returns the buffer of a checked span.
func (d *device) buffer(s devices.Span) *buffer {
	return s.Mem.Handle().(*buffer) //nolint:errcheck // each memory of this device has one
}

// Usage returns the memory that this device has allocated, and how much is left of its size
// and, if that is known, of the machine's memory.
func (d *device) Usage() (devices.Usage, error) {
	leave, err := d.life.Enter(context.Background(), d.self)
	if err != nil {
		return devices.Usage{}, err
	}
	defer leave()
	d.mu.Lock()
	used := d.used
	d.mu.Unlock()
	left := d.info.Total - used
	return devices.Usage{Total: d.info.Total, Used: used, Free: d.api.free(d.entry, d.system, left)}, nil
}

// Close waits for the operations in flight and frees everything. A buffer of which a view
// is still held is freed with the view.
func (d *device) Close() error {
	return d.life.Close(d.giveBack)
}

// giveBack frees the device's resources when it is closed.
func (d *device) giveBack() error {
	d.mu.Lock()
	left := slices.Collect(maps.Keys(d.buffers))
	d.mu.Unlock()
	var errs []error
	for _, b := range left {
		errs = append(errs, d.retire(b))
	}
	errs = append(errs, d.releaseLast())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", d.info.Name, err)
	}
	return nil
}

// releaseLast releases the context and the queues once the device is closed and no buffer
// is left.
func (d *device) releaseLast() error {
	d.mu.Lock()
	last := d.life.Closed() && len(d.buffers) == 0 && !d.done
	if last {
		d.done = true
	}
	d.mu.Unlock()
	if !last {
		return nil
	}
	return d.releaseAll()
}

// releaseAll releases the context and the queues that exist.
func (d *device) releaseAll() error {
	errs := []error{d.kernels.releaseAll(d.api)}
	for _, q := range []queueID{d.in, d.out, d.within} {
		if q != 0 {
			errs = append(errs, d.api.releaseQueue(q))
		}
	}
	errs = append(errs, check("clReleaseContext", Code(d.api.ReleaseContext.Call(uintptr(d.context)))))
	return errors.Join(errs...)
}
