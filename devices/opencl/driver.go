package opencl

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
)

// Family is the name of the family in specs: "opencl:0,size=2GiB". Its devices are named
// "ocl0", "ocl1", ….
const Family devices.Family = "opencl"

// Options configure the driver.
type Options struct {
	// Logger receives degradations and the life cycle of devices; nil disables logging.
	Logger *zap.Logger
}

// Driver opens OpenCL devices. It is safe for concurrent use.
type Driver struct {
	log    *zap.Logger
	from   dl.Library
	system system
	api    dl.Lazy[*api]
}

var _ devices.Driver = (*Driver)(nil)

// NewDriver returns the driver. It opens nothing: Discover and Open look for the library,
// each time until it is found.
func NewDriver(opts Options) *Driver {
	log := cmp.Or(opts.Logger, zap.NewNop())
	return &Driver{log: log.Named("opencl"), from: library(), system: system{sys: "/sys", proc: "/proc"}}
}

// Family returns "opencl".
func (d *Driver) Family() devices.Family { return Family }

// library opens the library, if that has not succeeded before.
func (d *Driver) library() (*api, error) {
	return d.api.Get(func() (*api, error) { return load(d.from) })
}

// Discover lists the devices of all platforms, with their default size. The error explains
// why there is none: no library, no driver, no device.
func (d *Driver) Discover(ctx context.Context) ([]devices.Found, error) {
	a, err := d.library()
	if err != nil {
		return nil, err
	}
	entries, err := a.list(ctx, d.system)
	if err != nil {
		return nil, err
	}
	var found []devices.Found
	for i, e := range entries {
		info := e.info(devices.Ordinal(i), e.byDefault())
		found = append(found, devices.Found{
			Info:  info,
			Usage: devices.Usage{Total: info.Total, Free: a.free(e, d.system, info.Total)},
		})
	}
	return found, nil
}

// Open opens the device that the spec names. Parameters:
//
//	size=SIZE      how much of the memory to use; by default half of a device
//	               that shares the host's memory, nine tenths of another
//	map=auto|off   whether memory that the device shares with the host is
//	               mapped for the host without a copy; auto by default
//
// The device implements devices.HostMapper if, and only if, it shares the
// host's memory and map is auto.
//
// Errors:
//   - devices.ErrNoDevice if there is no device with that number;
//   - devices.ErrDevice if the driver reports an error.
func (d *Driver) Open(ctx context.Context, spec devices.Spec) (devices.Device, error) {
	dev, mapped, err := d.open(ctx, spec)
	if err != nil {
		return nil, err
	}
	d.log.Info("device opened", zap.String("device", string(dev.info.Name)),
		zap.String("model", dev.info.Model), zap.Stringer("size", dev.info.Total), zap.Bool("mapped", mapped))
	if !mapped {
		dev.self = dev
		return dev, nil
	}
	m := &mappedDevice{device: dev}
	dev.self, dev.commit = m, m.populate
	return m, nil
}

// open returns the device without the wrapper for mapped memory.
func (d *Driver) open(ctx context.Context, spec devices.Spec) (dev *device, mapped bool, err error) {
	a, err := d.library()
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", err, devices.ErrNoDevice)
	}
	entries, err := a.list(ctx, d.system)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", err, devices.ErrNoDevice)
	}
	n := int(spec.Ordinal)
	if n >= len(entries) {
		return nil, false, fmt.Errorf("there is no OpenCL device %d, the last is %d; hmcfs devices lists them: %w",
			n, len(entries)-1, devices.ErrNoDevice)
	}
	e := entries[n]
	size, mode, err := readParams(spec, e)
	if err != nil {
		return nil, false, err
	}
	dev, err = newDevice(a, e, e.info(spec.Ordinal, size), d)
	return dev, e.unified && mode == "auto", err
}

// readParams reads the parameters of a spec for one device.
func readParams(spec devices.Spec, e entry) (size devices.Size, mode string, err error) {
	p := spec.Read()
	size = p.Size("size", e.byDefault())
	mode = p.Text("map", "auto")
	faults := []error{p.Err()}
	if mode != "auto" && mode != "off" {
		faults = append(faults, fmt.Errorf("device %q: map=%s is neither auto nor off", spec.Text, mode))
	}
	if size > e.global {
		faults = append(faults, fmt.Errorf("device %q: size is %v, %s has %v", spec.Text, size, e.model, e.global))
	}
	return size, mode, errors.Join(faults...)
}

// free returns how much of total other programs leave free, as far as the driver or, for
// shared memory, the host reports it.
func (a *api) free(e entry, files system, total devices.Size) devices.Size {
	if e.unified {
		if n, ok := files.available(); ok {
			return min(total, n)
		}
	}
	if e.freeAMD {
		if kib, err := deviceValue[[2]uint64](a, e.id, clDeviceFreeMemoryAMD); err == nil && kib[0] > 0 {
			return min(total, devices.Size(kib[0])*devices.KiB)
		}
	}
	return total
}
