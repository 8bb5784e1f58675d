package arena

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// fromSlabs leases n bytes from the existing slabs, if one has room; with spares, also from
// a spare slab of any size.
func (a *Arena) fromSlabs(n devices.Size, spares bool) (l Lease, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ready(); err != nil {
		return Lease{}, false, err
	}
	l, ok = a.lease(a.toPages(n), spares)
	return l, ok, nil
}

// ready returns an error if the arena is closed, and drops slabs that the device has lost.
//
// +checklocks:a.mu
func (a *Arena) ready() error {
	if a.closed {
		return fmt.Errorf("arena on %s: %w", a.info.Name, devices.ErrClosed)
	}
	if now := a.dev.Epoch(); now != a.epoch {
		a.epoch = now
		for _, s := range a.slabs {
			// The device does not count lost memory.
			a.held -= s.size
			s.size = 0
		}
		a.dropAll()
	}
	return nil
}

// dropAll removes every slab and queues its memory to be freed.
//
// +checklocks:a.mu
func (a *Arena) dropAll() {
	for _, s := range a.slabs {
		a.leaving = append(a.leaving, s)
	}
	clear(a.slabs)
	a.slots, a.spares = newSlots(), nil
	a.leased, a.retained = 0, 0
	a.lostBelow = a.nextID
}

// lease takes n pages in a row from the first slab that offers them, or else from a spare
// one.
//
// +checklocks:a.mu
func (a *Arena) lease(n uint32, spares bool) (l Lease, ok bool) {
	s := a.slots.find(n)
	if s == nil {
		s = a.spareFor(n, spares)
	}
	if s == nil {
		return Lease{}, false
	}
	return a.leaseFrom(s, n)
}

// +checklocks:a.mu
func (a *Arena) leaseFrom(s *slab, n uint32) (l Lease, ok bool) {
	page, ok := s.pages.find(n)
	if !ok {
		return Lease{}, false
	}
	a.take(s, page, n)
	return Lease{Slab: s.id, Span: devices.Span{Mem: s.mem, Range: devices.Range{
		Off: devices.Offset(a.toBytes(page)), Len: a.toBytes(n),
	}}}, true
}

// +checklocks:a.mu
func (a *Arena) take(s *slab, page, n uint32) {
	if s.whollyFree() {
		a.retained -= s.size
	}
	s.idle = false
	a.unspare(s)
	s.pages.take(page, n)
	a.slots.update(s)
	a.leased += a.toBytes(n)
}

// give frees pages; a slab that is then wholly free is kept only within the bound of
// Retain.
//
// +checklocks:a.mu
func (a *Arena) give(s *slab, page, n uint32) {
	if s.labels != nil {
		s.labels.clear(page, n)
	}
	s.pages.give(page, n)
	free := s.whollyFree()
	if free && s.size > a.opts.SlabSize {
		s.spare = true
		a.spares = append(a.spares, s)
	}
	a.slots.update(s)
	a.leased -= a.toBytes(n)
	if !free {
		return
	}
	a.retained += s.size
	if a.retained > a.opts.Retain {
		a.detach(s)
	}
}

// add adds a slab of new memory, which is wholly free.
//
// +checklocks:a.mu
func (a *Arena) add(s *slab) *slab {
	s.id, s.pages = a.nextID, newPageMap(a.toPages(s.size))
	a.nextID++
	a.slabs[s.id] = s
	a.slots.add(s)
	a.retained += s.size
	return s
}

// detach removes a wholly free slab and queues it to be freed.
//
// +checklocks:a.mu
func (a *Arena) detach(s *slab) {
	a.retained -= s.size
	a.unspare(s)
	a.slots.remove(s)
	delete(a.slabs, s.id)
	a.leaving = append(a.leaving, s)
}

// spot is a range of pages in a slab.
type spot struct {
	slab    *slab
	page, n uint32
}

func (p spot) taken() bool { return p.slab.pages.isTaken(p.page, p.n) }

// locate returns the slab and the pages of a range.
//
// +checklocks:a.mu
func (a *Arena) locate(id SlabID, r devices.Range) (spot, error) {
	if err := a.ready(); err != nil {
		return spot{}, err
	}
	s, ok := a.slabs[id]
	switch {
	case !ok && id > 0 && id < a.lostBelow:
		return spot{}, fmt.Errorf("slab %d of %s: %w", id, a.info.Name, devices.ErrLost)
	case !ok:
		return spot{}, fmt.Errorf("no slab %d on %s: %w", id, a.info.Name, ErrNotLeased)
	case r.Len == 0 || (uint64(r.Off)|uint64(r.Len))&uint64(a.opts.PageSize-1) != 0:
		return spot{}, fmt.Errorf("%v of slab %d of %s does not consist of whole pages: %w",
			r, id, a.info.Name, devices.ErrRange)
	case !r.Within(s.size):
		return spot{}, fmt.Errorf("%v of slab %d of %s, %d bytes long: %w",
			r, id, a.info.Name, uint64(s.size), devices.ErrRange)
	}
	return spot{slab: s, page: a.toPages(devices.Size(r.Off)), n: a.toPages(r.Len)}, nil
}

func (a *Arena) outOfMemory(asked devices.Size) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &devices.OutOfMemoryError{Device: a.info.Name, Asked: asked, Free: a.total - a.leased}
}

func (a *Arena) toPages(n devices.Size) uint32 { return uint32(n / a.opts.PageSize) }

func (a *Arena) toBytes(pages uint32) devices.Size {
	return devices.Size(pages) * a.opts.PageSize
}
