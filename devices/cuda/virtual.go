package cuda

import (
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// mapping is physical memory that is mapped into an address range of its own.
type mapping struct {
	addr     address
	size     devices.Size // a multiple of the card's unit
	physical cuPhysical

	mu sync.Mutex
	// peers are the other cards that have access to it.
	// +checklocks:mu
	peers map[cuDevice]bool
}

// mappingOf returns the mapping of a block, nil for plain memory.
func mappingOf(b *card.Block) *mapping {
	m, _ := b.Own.(*mapping)
	return m
}

// units are the granularities, in bytes, of physical memory.
type units struct {
	// plain is for memory that stays in this process, exported for memory that can be
	// exported: the driver may require larger units for the latter.
	plain, exported devices.Size
	// least is the unit for mapping memory exported by another process, which may have
	// allocated it in smaller units than the recommended ones.
	least devices.Size
}

// readUnits queries the units of the card.
func (d *device) readUnits() (u units, err error) {
	if u.plain, err = d.api.granularity(d.prop(), cuGranularityRecommended); err != nil || !d.entry.export {
		return u, err
	}
	if u.exported, err = d.api.granularity(d.exportedProp(), cuGranularityRecommended); err != nil {
		return u, err
	}
	u.least, err = d.api.granularity(d.exportedProp(), cuGranularityMinimum)
	return u, err
}

// prop describes the physical memory to allocate. If the card supports it, it is memory
// that network cards can access: libraries that register files' memory with one can't know
// how it was allocated.
func (d *device) prop() *allocationProp {
	p := &allocationProp{
		Type:     cuAllocationPinned,
		Location: location{Type: cuLocationDevice, ID: int32(d.entry.device)},
	}
	if d.entry.rdma {
		p.GPUDirectRDMA = 1
	}
	return p
}

// exportedProp is prop for memory that can be exported, which must be specified at
// allocation.
func (d *device) exportedProp() *allocationProp {
	p := d.prop()
	p.RequestedHandleTypes = cuHandlePosixFD
	return p
}

// newVirtual allocates and maps physical memory. n is a multiple of units.plain.
func (d *device) newVirtual(n devices.Size) (*card.Block, error) { return d.newPhysical(n, d.prop()) }

// newPhysical allocates and maps physical memory of a kind. n is a multiple of its unit.
func (d *device) newPhysical(n devices.Size, p *allocationProp) (*card.Block, error) {
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

// newMapped maps physical memory, and takes ownership of it unless it fails.
func (d *device) newMapped(h cuPhysical, n devices.Size) (*card.Block, error) {
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
	return &card.Block{Addr: p, Size: n, Own: m, Give: func() error {
		return errors.Join(d.api.unmap(p, n), d.api.releasePhysical(h), d.api.unreserve(p, n))
	}}, nil
}
