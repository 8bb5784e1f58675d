package cuda

import (
	"cmp"
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// Family is the name of the family in specs: "cuda:0,size=16GiB". Its devices are named
// "cuda0", "cuda1", …, in the driver's order.
const Family devices.Family = "cuda"

// controlFile is the device file that every process opens first to use the driver.
const controlFile = "/dev/nvidiactl"

// Options configure the driver.
type Options struct {
	// Logger receives degradations and the life cycle of devices; nil disables logging.
	Logger *zap.Logger
	// Library is the path of the driver's library; empty means libcuda.so.1, as found by
	// the loader.
	Library string
	// Management is the path of the library that reports free memory (NVML); empty means
	// libnvidia-ml.so.1, as found by the loader.
	Management string
}

// Driver opens CUDA devices. It is safe for concurrent use.
type Driver struct {
	log   *zap.Logger
	from  dl.Library
	sys   string
	api   dl.Lazy[*api]
	cards card.Set
	// management is the path of the management library, managed the opened library.
	management string
	managed    dl.Lazy[*management]
}

var _ devices.Driver = (*Driver)(nil)

// NewDriver returns the driver. It opens nothing: Discover and Open look for the library,
// each time until it is found. The process must not fork and continue in the child
// afterwards: CUDA does not work there.
func NewDriver(opts Options) *Driver {
	log := cmp.Or(opts.Logger, zap.NewNop())
	return &Driver{log: log.Named("cuda"), from: library(opts.Library), management: opts.Management, sys: sysfs.Root}
}

// Family returns "cuda".
func (d *Driver) Family() devices.Family { return Family }

// library opens the library, if that has not succeeded before.
func (d *Driver) library() (*api, error) {
	return d.api.Get(func() (*api, error) {
		a, err := load(d.from)
		if codeOf(err) != 0 {
			err = forbidden(err, controlFile)
		}
		return a, err
	})
}

// Discover lists the cards, with their default size. The error explains why there is none:
// no library, an old driver, no card. It creates no context, which takes hundreds of MB of
// a card's memory and fails on a card that another process uses exclusively. Free memory is
// queried from the management library; if that does not know it, all memory counts as free.
func (d *Driver) Discover(ctx context.Context) ([]devices.Found, error) {
	a, err := d.library()
	if err != nil {
		return nil, err
	}
	entries, err := a.list(ctx, d.sys)
	if err != nil {
		return nil, err
	}
	known, err := d.freeOf(entries)
	if err != nil {
		d.log.Info("the free memory of cards is unknown", zap.Error(err))
	}
	var found []devices.Found
	for _, e := range entries {
		free, told := known[e.UUID]
		if !told {
			free = e.Total
		}
		found = append(found, card.Found(e.Info, free))
	}
	return found, nil
}

// Open opens the card that the spec names. Parameters:
//
//	size=SIZE   how much of the memory to use, nine tenths by default
//
// Errors:
//   - devices.ErrNoDevice if there is no card with that number;
//   - devices.ErrDevice if the driver reports an error.
func (d *Driver) Open(ctx context.Context, spec devices.Spec) (devices.Device, error) {
	a, err := d.library()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, devices.ErrNoDevice)
	}
	entries, err := a.list(ctx, d.sys)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, devices.ErrNoDevice)
	}
	for _, e := range entries {
		if e.Ordinal != spec.Ordinal {
			continue
		}
		size, err := card.ReadParams(spec, e.Info)
		if err != nil {
			return nil, err
		}
		return d.open(a, e, size)
	}
	return nil, fmt.Errorf("there is no CUDA device %d, the last is %d; hmcfs devices lists them: %w",
		spec.Ordinal, entries[len(entries)-1].Ordinal, devices.ErrNoDevice)
}

// open opens a card.
func (d *Driver) open(a *api, e entry, size devices.Size) (devices.Device, error) {
	dev, err := newDevice(d, a, e, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Model, err)
	}
	d.log.Info("device opened", zap.String("device", string(dev.Info().Name)),
		zap.String("model", e.Model), zap.String("uuid", e.UUID), zap.Stringer("size", size),
		zap.Bool("virtual memory", e.virtual))
	return dev, nil
}
