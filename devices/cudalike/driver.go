package cudalike

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// The families, as named in specs: "hip:0,size=16GiB". Their devices are named "hip0",
// "mlu0", "musa0", "npu0", ….
const (
	HIP       devices.Family = "hip"
	Cambricon devices.Family = "mlu"
	MUSA      devices.Family = "musa"
	Ascend    devices.Family = "npu"
)

// Options configure a driver.
type Options struct {
	// Logger receives the life cycle of devices and their failures; nil disables logging.
	Logger *zap.Logger
}

// family describes a vendor before its library is opened.
type family struct {
	name devices.Family
	// vendor is the name for people.
	vendor  string
	library dl.Library
	// check suggests what to check if there is no device.
	check string
	// adapt builds the table from an opened library.
	adapt func(lib *dl.Handle) (*table, error)
}

// Driver opens the devices of one vendor. It is safe for concurrent use.
type Driver struct {
	family family
	log    *zap.Logger
	sys    string // as sysfs.Root
	table  dl.Lazy[*table]
	cards  card.Set
}

var _ devices.Driver = (*Driver)(nil)

// newDriver opens nothing: Discover and Open look for the library, each time until it is
// found.
func newDriver(f family, opts Options) *Driver {
	log := cmp.Or(opts.Logger, zap.NewNop())
	return &Driver{family: f, log: log.Named(string(f.name)), sys: sysfs.Root}
}

// Family returns the family's name.
func (d *Driver) Family() devices.Family { return d.family.name }

// library opens the library and initializes its runtime, if that has not succeeded before.
func (d *Driver) library() (*table, error) {
	return d.table.Get(func() (*table, error) {
		lib, err := dl.Open(d.family.library)
		if err != nil {
			return nil, err
		}
		t, err := d.family.adapt(lib)
		if err != nil {
			return nil, err
		}
		t.library = lib.Name()
		if err := t.init(); err != nil {
			return nil, d.noDevice(t, err)
		}
		return t, nil
	})
}

// noDevice returns the reason why there is no device although the library exists.
func (d *Driver) noDevice(t *table, err error) error {
	return fmt.Errorf("%s finds no %s device: %w; %s", filepath.Base(t.library), d.family.vendor, err, d.family.check)
}

// errNone is the reason if a runtime counts 0 devices without reporting an error.
var errNone = errors.New("the runtime counts 0")

// devices counts the available devices.
func (d *Driver) devices() (*table, int, error) {
	t, err := d.library()
	if err != nil {
		return nil, 0, err
	}
	n, err := t.count()
	if err == nil && n <= 0 {
		err = errNone
	}
	if err != nil {
		return nil, 0, d.noDevice(t, err)
	}
	return t, n, nil
}

// Discover lists the devices that the runtime reports, with their default size. The error
// explains why there is none: no library, no driver, no device. A device that does not
// answer is omitted.
func (d *Driver) Discover(ctx context.Context) ([]devices.Found, error) {
	t, n, err := d.devices()
	if err != nil {
		return nil, err
	}
	var found []devices.Found
	var reasons []error
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		whole, free, err := d.describe(t, i)
		if err != nil {
			d.log.Warn("device does not respond", zap.Int("ordinal", i), zap.Error(err))
			reasons = append(reasons, fmt.Errorf("%s%d: %w", d.family.name, i, err))
			continue
		}
		found = append(found, card.Found(whole, free))
	}
	if len(found) == 0 {
		return nil, errors.Join(reasons...)
	}
	return found, nil
}

// Open opens the device that the spec names. Parameters:
//
//	size=SIZE   how much of the memory to use, by default nine tenths
//
// The device has the abilities for which the library has functions: PeerCopier, Exporter
// and Importer, Pinner.
//
// Errors:
//   - devices.ErrNoDevice if there is no device with that number;
//   - devices.ErrDevice if the runtime reports an error.
func (d *Driver) Open(_ context.Context, spec devices.Spec) (devices.Device, error) {
	t, n, err := d.devices()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, devices.ErrNoDevice)
	}
	ordinal := int(spec.Ordinal)
	if ordinal >= n {
		return nil, fmt.Errorf("there is no %s device %d, the last is %d; hmcfs devices lists them: %w",
			d.family.vendor, ordinal, n-1, devices.ErrNoDevice)
	}
	whole, _, err := d.describe(t, ordinal)
	if err != nil {
		return nil, err
	}
	size, err := card.ReadParams(spec, whole)
	if err != nil {
		return nil, err
	}
	c, err := acquire(t, ordinal)
	if err != nil {
		return nil, err
	}
	info := card.Describe(whole, size)
	d.log.Info("device opened", zap.String("device", string(info.Name)),
		zap.String("model", info.Model), zap.Stringer("size", size))
	return d.newDevice(t, c, info), nil
}
