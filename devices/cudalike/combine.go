package cudalike

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// One type for each combination of abilities, since a type can't lose a method at run time.
type (
	withPeer struct {
		*device
		peerer
	}
	withShare struct {
		*device
		card.Sharer
	}
	withPin struct {
		*device
		pinner
	}
	withPeerShare struct {
		*device
		peerer
		card.Sharer
	}
	withPeerPin struct {
		*device
		peerer
		pinner
	}
	withSharePin struct {
		*device
		card.Sharer
		pinner
	}
	withAll struct {
		*device
		peerer
		card.Sharer
		pinner
	}
)

// combine returns the device with the abilities that its table provides.
func (d *device) combine() devices.Device {
	peer, share, pin := peerer{d}, card.NewSharer(d.Card, sharing{d}), pinner{d}
	switch [3]bool{d.t.peer != nil, d.t.ipc != nil, d.t.pin != nil} {
	case [3]bool{true, false, false}:
		return &withPeer{d, peer}
	case [3]bool{false, true, false}:
		return &withShare{d, share}
	case [3]bool{false, false, true}:
		return &withPin{d, pin}
	case [3]bool{true, true, false}:
		return &withPeerShare{d, peer, share}
	case [3]bool{true, false, true}:
		return &withPeerPin{d, peer, pin}
	case [3]bool{false, true, true}:
		return &withSharePin{d, share, pin}
	case [3]bool{true, true, true}:
		return &withAll{d, peer, share, pin}
	default:
		return d
	}
}
