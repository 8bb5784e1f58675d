package cudalike

import "github.com/hmcfs/hmcfs/devices"

// One type for each combination of abilities, since a type can't lose a method
// at run time.
type (
	withPeer struct {
		*device
		peerer
	}
	withShare struct {
		*device
		sharer
	}
	withPin struct {
		*device
		pinner
	}
	withPeerShare struct {
		*device
		peerer
		sharer
	}
	withPeerPin struct {
		*device
		peerer
		pinner
	}
	withSharePin struct {
		*device
		sharer
		pinner
	}
	withAll struct {
		*device
		peerer
		sharer
		pinner
	}
)

// combine gives the device the abilities that its table has.
func (d *device) combine() devices.Device {
	peer, share, pin := peerer{d}, sharer{d}, pinner{d}
	switch [3]bool{d.t.peer != nil, d.t.ipc != nil, d.t.pin != nil} {
	case [3]bool{true, false, false}:
		d.self = &withPeer{d, peer}
	case [3]bool{false, true, false}:
		d.self = &withShare{d, share}
	case [3]bool{false, false, true}:
		d.self = &withPin{d, pin}
	case [3]bool{true, true, false}:
		d.self = &withPeerShare{d, peer, share}
	case [3]bool{true, false, true}:
		d.self = &withPeerPin{d, peer, pin}
	case [3]bool{false, true, true}:
		d.self = &withSharePin{d, share, pin}
	case [3]bool{true, true, true}:
		d.self = &withAll{d, peer, share, pin}
	default:
		d.self = d
	}
	return d.self
}
