package faulty

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
)

// Simulated returns the simulated device in dev, even if it is mapped, pinned or wrapped (by a
// type with an Unwrap method); nil if there is none.
func Simulated(dev devices.Device) *sim.Device {
	for {
		switch d := dev.(type) {
		case *sim.Device:
			return d
		case *sim.MappedDevice:
			return d.Device
		case *sim.PinnedDevice:
			return d.Device
		case interface{ Unwrap() devices.Device }:
			dev = d.Unwrap()
		default:
			return nil
		}
	}
}
