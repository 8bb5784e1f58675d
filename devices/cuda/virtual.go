package cuda

import (
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// mapping is physical memory that is mapped into addresses of its own.
type mapping struct {
	addr     address
	size     devices.Size // a multiple of the card's unit
	physical cuPhysical

	mu sync.Mutex
	// peers are the other cards that may touch it.
	// +checklocks:mu
	peers map[cuDevice]bool
}

// prop describes the physical memory that is wanted.
func (d *device) prop() *allocationProp {
	return &allocationProp{
		Type:     cuAllocationPinned,
		Location: location{Type: cuLocationDevice, ID: int32(d.entry.device)},
	}
}

// newVirtual makes physical memory and maps it. n is a multiple of the unit.
func (d *device) newVirtual(n devices.Size) (*block, error) { return d.newPhysical(n, d.prop()) }

// newExported is newVirtual of memory that can be exported, which must be said
// when it is made.
func (d *device) newExported(n devices.Size) (*block, error) {
	p := d.prop()
	p.RequestedHandleTypes = cuHandlePosixFD
	b, err := d.newPhysical(n, p)
	if err != nil {
		return nil, err
	}
	b.kind = devices.HandleVMM
	return b, nil
}

func (d *device) newPhysical(n devices.Size, p *allocationProp) (*block, error) {
	h, err := d.api.create(n, p)
	if err != nil {
		return nil, err
	}
	b, err := d.newMapped(h, n)
	if err != nil {
		return nil, errors.Join(err, d.api.releasePhysical(h))
	}
	return b, nil
}

// newMapped maps physical memory, which it owns unless it fails.
func (d *device) newMapped(h cuPhysical, n devices.Size) (*block, error) {
	p, err := d.api.reserve(n)
	if err != nil {
		return nil, err
	}
	if err := d.api.mapPhysical(p, n, h); err != nil {
		return nil, errors.Join(err, d.api.unreserve(p, n))
	}
	if err := d.api.setAccess(p, n, d.entry.device); err != nil {
		return nil, errors.Join(err, d.api.unmap(p, n), d.api.unreserve(p, n))
	}
	m := &mapping{addr: p, size: n, physical: h}
	return &block{addr: p, virtual: m, give: func() error {
		return errors.Join(d.api.unmap(p, n), d.api.releasePhysical(h), d.api.unreserve(p, n))
	}}, nil
}
