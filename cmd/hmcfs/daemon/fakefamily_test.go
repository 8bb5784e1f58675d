package daemon

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// fakeFamily has cards that reach each other.
type fakeFamily struct{}

func (fakeFamily) Family() devices.Family { return "fake" }

func (fakeFamily) Discover(context.Context) ([]devices.Found, error) { return nil, nil }

func (fakeFamily) Open(context.Context, devices.Spec) (devices.Device, error) {
	return nil, devices.ErrNoDevice
}

func (fakeFamily) Peerings(context.Context) ([]devices.Peering, error) {
	return []devices.Peering{{A: 0, B: 1}, {A: 0, B: 3, Rank: 2}}, nil
}
