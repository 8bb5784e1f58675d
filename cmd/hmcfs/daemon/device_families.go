package daemon

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/cuda"
	"github.com/hmcfs/hmcfs/devices/cudalike"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
)

// Families returns the registry of all device families, in the order in which they are
// shown. tier configures the host tier.
func Families(tier host.Options, log *zap.Logger) *devices.Registry {
	return devices.NewRegistry(
		host.NewDriver(tier),
		cuda.NewDriver(cuda.Options{Logger: log}),
		cudalike.NewHIP(cudalike.Options{Logger: log}),
		cudalike.NewCambricon(cudalike.Options{Logger: log}),
		cudalike.NewMUSA(cudalike.Options{Logger: log}),
		cudalike.NewAscend(cudalike.Options{Logger: log}),
		opencl.NewDriver(opencl.Options{Logger: log}),
		sim.NewDriver(),
	)
}

// FamilyParams returns the valid specifications of all families, so that an invalid one is
// refused before anything is changed.
func FamilyParams() []config.Family {
	return []config.Family{
		{Name: string(host.Family), Params: []config.Param{
			{Name: "size", Kind: config.ParamSize},
			{Name: "mlock", Kind: config.ParamBool},
		}},
		{Name: string(cuda.Family), Params: sizeOnly()},
		{Name: string(cudalike.HIP), Params: sizeOnly()},
		{Name: string(cudalike.Cambricon), Params: sizeOnly()},
		{Name: string(cudalike.MUSA), Params: sizeOnly()},
		{Name: string(cudalike.Ascend), Params: sizeOnly()},
		{Name: string(opencl.Family), Params: []config.Param{
			{Name: "size", Kind: config.ParamSize},
			{Name: "map", Kind: config.ParamWord, Words: []string{"auto", "off"}},
		}},
		{Name: string(sim.Family), Params: []config.Param{
			{Name: "size", Kind: config.ParamSize},
			{Name: "maxalloc", Kind: config.ParamSize},
			{Name: "bandwidth", Kind: config.ParamRate},
			{Name: "copybandwidth", Kind: config.ParamRate},
			{Name: "latency", Kind: config.ParamTime},
			{Name: "mapped", Kind: config.ParamBool},
			{Name: "pinned", Kind: config.ParamBool},
		}},
	}
}

// sizeOnly returns the parameters of the vendors' families.
func sizeOnly() []config.Param { return []config.Param{{Name: "size", Kind: config.ParamSize}} }

// SpecError is the error for a device specification that this machine cannot fulfil, such
// as one of a device that does not exist.
type SpecError struct{ error }

// Unwrap returns the driver's error, which names the device, the cause and the remedy.
func (e *SpecError) Unwrap() error { return e.error }

// openSpecs opens every device requested, or none.
func openSpecs(ctx context.Context, reg *devices.Registry, specs []string) (devs []devices.Device, err error) {
	defer func() {
		if err != nil {
			for _, dev := range devs {
				err = errors.Join(err, dev.Close())
			}
			devs = nil
		}
	}()
	for _, text := range specs {
		dev, oerr := openSpec(ctx, reg, text)
		if oerr != nil {
			return devs, oerr
		}
		devs = append(devs, dev)
	}
	return devs, nil
}

// openSpec opens one device. The errors of drivers name the device if the specification is
// at fault, but not if the machine is.
func openSpec(ctx context.Context, reg *devices.Registry, text string) (devices.Device, error) {
	spec, err := devices.ParseSpec(text)
	if err != nil {
		return nil, &SpecError{err}
	}
	for _, driver := range reg.Drivers() {
		if driver.Family() != spec.Family {
			continue
		}
		dev, oerr := driver.Open(ctx, spec)
		_, system := errors.AsType[syscall.Errno](oerr)
		switch {
		case oerr == nil:
			return dev, nil
		case errors.Is(oerr, devices.ErrDevice) || system || ctx.Err() != nil:
			return nil, fmt.Errorf("open device %q: %w", text, oerr)
		}
		return nil, &SpecError{oerr}
	}
	return nil, &SpecError{fmt.Errorf("device %q: unknown family %q: %w", text, spec.Family, devices.ErrNoDevice)}
}

// withHost puts the host device first if the specs do not name it: it is always included.
func withHost(specs []string) []string {
	for _, s := range specs {
		if spec, err := devices.ParseSpec(s); err == nil && spec.Family == host.Family {
			return specs
		}
	}
	return append([]string{string(host.Family)}, specs...)
}
