package daemon

import (
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
)

// Families is the explicit list of all device families, in the order in
// which they are shown. runtimeDir is where the host tier goes.
func Families(runtimeDir string, log *zap.Logger) *devices.Registry {
	return devices.NewRegistry(
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

// The families that the choice of devices knows by name.
const (
	hostFamily = "host"
	simFamily  = "sim"
)

// withHost puts the host device first where the specs do not name it: it is
// always there.
func withHost(specs []string) []string {
	for _, s := range specs {
		if family, _, _ := strings.Cut(s, ","); strings.HasPrefix(family+":", hostFamily+":") {
			return specs
		}
	}
	return append([]string{hostFamily}, specs...)
}

// openFound opens the host device and every accelerator that is there. One
// that can't be opened is left out, with a warning.
func (d *Daemon) openFound(ctx context.Context, reg *devices.Registry) ([]devices.Device, error) {
	host, err := reg.Open(ctx, hostFamily)
	if err != nil {
		return nil, err
	}
	devs := []devices.Device{host}
	for _, driver := range reg.Drivers() {
		family := driver.Family()
		if family == hostFamily || family == simFamily {
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
