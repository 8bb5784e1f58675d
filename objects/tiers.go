package objects

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// tiers are the devices of a store, in the order of Options.Devices.
type tiers []*tier

func (ts tiers) named(name metadata.DeviceName) (*tier, error) {
	for _, t := range ts {
		if t.name == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("device %q is not part of this mount: %w", name, ErrLost)
}

// deviceNamed is named for a name that a user gave.
func (ts tiers) deviceNamed(device devices.Name) (*tier, error) {
	t, err := ts.named(metadata.DeviceName(device))
	if err != nil {
		return nil, fmt.Errorf("device %q is not part of this mount: %w", device, ErrInvalid)
	}
	return t, nil
}

// host is the tier of host memory.
//
// Errors: ErrUnsupported for a mount without one.
func (ts tiers) host() (*tier, error) {
	for _, t := range ts {
		if t.files != nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("the mount has no device of host memory: %w", ErrUnsupported)
}

func (ts tiers) inHostTier(in metadata.Inode) bool {
	t, err := ts.named(in.Device)
	return err == nil && t.files != nil
}

func (ts tiers) close() error {
	var errs []error
	for _, t := range ts {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}
