package daemon

import (
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
)

// Families is the explicit list of all device families, in the order in
// which they are shown. runtimeDir is where the host tier goes.
func Families(runtimeDir string, log *zap.Logger) *devices.Registry {
	return devices.NewRegistry(
		host.NewDriver(host.Options{Dir: runtimeDir}),
		opencl.NewDriver(opencl.Options{Logger: log}),
		sim.NewDriver(),
	)
}

// FamilyNames lists the families by name, for checks and messages.
func FamilyNames() []string {
	var names []string
	for _, d := range Families("", nil).Drivers() {
		names = append(names, string(d.Family()))
	}
	return names
}

// withHost puts the host device first where the specs do not name it: it is
// always there.
func withHost(specs []string) []string {
	for _, s := range specs {
		if family, _, _ := strings.Cut(s, ","); strings.HasPrefix(family+":", string(host.Family)+":") {
			return specs
		}
	}
	return append([]string{string(host.Family)}, specs...)
}

// openFound opens the host device and every accelerator that is there. One
// that can't be opened is left out, with a warning.
func (d *Daemon) openFound(ctx context.Context, reg *devices.Registry) ([]devices.Device, error) {
	first, err := reg.Open(ctx, string(host.Family))
	if err != nil {
		return nil, err
	}
	devs := []devices.Device{first}
	for _, driver := range reg.Drivers() {
		family := driver.Family()
		if family == host.Family || family == sim.Family {
			continue
		}
		found, err := driver.Discover(ctx)
		if err != nil {
			d.log.Info("family has no devices", zap.String("family", string(family)), zap.Error(err))
		}
		for _, f := range found {
			dev, err := reg.Open(ctx, fmt.Sprintf("%s:%d", family, f.Info.Ordinal))
			if err != nil {
				d.warn(fmt.Sprintf("device %s is left out: %v", f.Info.Name, err))
				continue
			}
			devs = append(devs, dev)
		}
	}
	return devs, nil
}
