package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Found is a device that a family finds on this machine, whether opened or not.
type Found struct {
	Info  Info  `json:"info"`
	Usage Usage `json:"usage"`
}

// Driver opens the devices of one family.
type Driver interface {
	// Family returns the family's name, as used in specs.
	Family() Family
	// Discover lists the available devices without opening them. An error explains why
	// there are none ("libcuda.so.1 is not installed"); it is not a failure.
	Discover(ctx context.Context) ([]Found, error)
	// Open opens the device that the spec names.
	Open(ctx context.Context, spec Spec) (Device, error)
}

// Registry is the explicit list of the families that a program supports. It is immutable.
type Registry struct {
	drivers []Driver
}

// NewRegistry returns a registry of the families, in the order in which they are shown.
func NewRegistry(drivers ...Driver) *Registry {
	return &Registry{drivers: drivers}
}

// Drivers returns the families in order.
func (r *Registry) Drivers() []Driver { return r.drivers }

// Open opens the device given by the text of a spec.
func (r *Registry) Open(ctx context.Context, text string) (Device, error) {
	spec, err := ParseSpec(text)
	if err != nil {
		return nil, err
	}
	for _, d := range r.drivers {
		if d.Family() == spec.Family {
			dev, err := d.Open(ctx, spec)
			if err != nil {
				return nil, fmt.Errorf("open device %q: %w", text, err)
			}
			return dev, nil
		}
	}
	return nil, fmt.Errorf("device %q: unknown family %q; known are %s; give one as FAMILY:NUMBER, such as sim:0: %w",
		text, spec.Family, strings.Join(r.families(), ", "), ErrNoDevice)
}

func (r *Registry) families() []string {
	var names []string
	for _, d := range r.drivers {
		names = append(names, string(d.Family()))
	}
	slices.Sort(names)
	return names
}
