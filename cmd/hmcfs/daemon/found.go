package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
)

// openFound opens the host device and every accelerator found. One that cannot be opened is
// skipped, with a warning.
func (d *Daemon) openFound(ctx context.Context, reg *devices.Registry) ([]devices.Device, error) {
	first, err := reg.Open(ctx, string(host.Family))
	if err != nil {
		return nil, err
	}
	devs := []devices.Device{first}
	for _, f := range d.discover(ctx, reg) {
		dev, err := reg.Open(ctx, fmt.Sprintf("%s:%d", f.Info.Family, f.Info.Ordinal))
		if err != nil {
			d.warn(fmt.Sprintf("device %s is skipped: %v", f.Info.Name, err))
			continue
		}
		devs = append(devs, dev)
	}
	return devs, nil
}

// discover lists the accelerators of every family, each card once.
func (d *Daemon) discover(ctx context.Context, reg *devices.Registry) []devices.Found {
	var found []devices.Found
	for _, driver := range reg.Drivers() {
		family := driver.Family()
		if family == host.Family || family == sim.Family {
			continue
		}
		here, err := driver.Discover(ctx)
		if err != nil {
			d.log.Info("family has no devices", zap.String("family", string(family)), zap.Error(err))
		}
		found = append(found, here...)
	}
	return eachCardOnce(found, func(twice devices.Found) {
		d.log.Info("card is already mounted through its vendor's runtime; name it with --device to mount it here too",
			zap.String("device", string(twice.Info.Name)), zap.String("pci", twice.Info.PCI))
	})
}

// eachCardOnce removes the OpenCL devices that are cards of a vendor's own runtime: two
// directories for one card would look like twice the memory.
func eachCardOnce(found []devices.Found, left func(devices.Found)) []devices.Found {
	vendors := map[string]bool{}
	for _, f := range found {
		if f.Info.Family != opencl.Family {
			vendors[strings.ToLower(f.Info.PCI)] = true
		}
	}
	return slices.DeleteFunc(found, func(f devices.Found) bool {
		twice := f.Info.Family == opencl.Family && f.Info.PCI != "" && vendors[strings.ToLower(f.Info.PCI)]
		if twice {
			left(f)
		}
		return twice
	})
}
