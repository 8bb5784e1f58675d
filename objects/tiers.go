package objects

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// tiers are the devices of a store, in the order of Options.Devices.
type tiers []*content.Tier

func (ts tiers) named(name metadata.DeviceName) (*content.Tier, error) {
	for _, t := range ts {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("device %q is not part of this mount: %w", name, ErrLost)
}

// deviceNamed is named for a name that comes from a user.
func (ts tiers) deviceNamed(device devices.Name) (*content.Tier, error) {
	t, err := ts.named(metadata.DeviceName(device))
	if err != nil {
		return nil, fmt.Errorf("device %q is not part of this mount: %w", device, ErrInvalid)
	}
	return t, nil
}

// host returns the host tier.
//
// Errors: ErrUnsupported for a mount without one.
func (ts tiers) host() (*content.Tier, error) {
	for _, t := range ts {
		if t.Files != nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("the mount has no host-tier device: %w", ErrUnsupported)
}

func (ts tiers) inHostTier(in metadata.Inode) bool {
	t, err := ts.named(in.Device)
	return err == nil && t.Files != nil
}

// close ends the use of all devices. With leave, what is kept of their memory stays.
func (ts tiers) close(leave bool) error {
	var errs []error
	for _, t := range ts {
		if leave {
			errs = append(errs, t.Leave())
		} else {
			errs = append(errs, t.Close())
		}
	}
	return errors.Join(errs...)
}
