package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// Families is the explicit list of all device families, in the order in
// which they are shown. tier says where the host tier goes, and how.
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

// FamilyParams tells what a specification may say, so that a wrong one is
// refused before anything is touched.
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

// sizeOnly is the parameters of the vendors' families.
func sizeOnly() []config.Param { return []config.Param{{Name: "size", Kind: config.ParamSize}} }

// SpecError is a device specification that this machine can't fulfil, such
// as one of a device that is not there.
type SpecError struct{ err error }

// Error names the device, the cause and the way out.
func (e *SpecError) Error() string { return e.err.Error() }

// Unwrap is the driver's error.
func (e *SpecError) Unwrap() error { return e.err }

// openSpecs opens every device that was asked for, or none.
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

// openSpec opens one device. The drivers name the device in what they say of
// a specification; of the machine's own faults they don't.
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
