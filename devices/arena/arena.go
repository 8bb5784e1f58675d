package arena

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
)

// SlabID identifies a slab. An arena never reuses one.
type SlabID uint64

// Lease is a range of pages that the holder may use until it frees them. It is plain data:
// the arena keeps no record of it, and it may be stored and rebuilt with Resolve.
type Lease struct {
	Slab SlabID
	// Span is the memory of the lease. It begins at a page and consists of whole pages.
	Span devices.Span
}

// Arena leases pages of one device's memory. All methods are safe for concurrent use.
type Arena struct {
	dev     devices.Device
	info    devices.Info
	opts    Options
	unit    devices.Size // of slabs, page multiple
	total   devices.Size // multiple of unit
	largest devices.Size // multiple of unit, the largest possible slab

	// files makes the files of slabs that are kept. own is set if these have the labels alone,
	// and the memory has a descriptor of the device's.
	files memfd.Space
	own   bool

	// turn is a token: its holder may call the device.
	turn chan struct{}
	// leaves is set by Leave: slabs that are released stay kept. The holder of the turn uses it.
	leaves bool

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	epoch devices.Epoch
	// lostBelow is the lowest slab ID of the current epoch: lower ones may be lost.
	// +checklocks:mu
	lostBelow SlabID
	// +checklocks:mu
	nextID SlabID
	// +checklocks:mu
	slabs map[SlabID]*slab
	// +checklocks:mu
	slots *slots
	// leased is the number of leased bytes.
	// +checklocks:mu
	leased devices.Size
	// held is the number of bytes in all slabs, including one that is being allocated or
	// freed.
	// +checklocks:mu
	held devices.Size
	// retained is the number of bytes in wholly free slabs.
	// +checklocks:mu
	retained devices.Size
	// spares are the wholly free slabs larger than the usual size.
	// +checklocks:mu
	spares []*slab
	// leaving are slabs that have been removed and whose memory the next holder of the turn
	// returns to the device.
	// +checklocks:mu
	leaving []*slab
}

// slab is one allocation of the device, cut into pages.
type slab struct {
	id    SlabID
	slot  int
	mem   *devices.Memory
	size  devices.Size
	pages *pageMap
	// spare is set while the slab is among the spares: the slot tree does not offer it.
	spare bool
	// idle is set if the slab is wholly free, and was at the last Trim.
	idle bool
	// name is that of the slab's file, and labels say what it holds; a slab that ends with
	// the process has neither.
	name   string
	labels *labels
}

func (s *slab) whollyFree() bool { return s.pages.free == s.pages.pages }

// offer returns the longest run that the slot tree may offer, in pages.
func (s *slab) offer() uint32 {
	if s.spare {
		return 0
	}
	return s.pages.longest()
}

// New returns an arena on a device. It does not allocate memory yet.
func New(dev devices.Device, o Options) (*Arena, error) {
	info := dev.Info()
	unit, own := o.slabUnit(dev)
	o, err := o.withDefaults(info, unit)
	if err != nil {
		return nil, err
	}
	var files memfd.Space
	if o.Keeper != nil {
		files = memfd.OpenSpace()
	}
	return &Arena{
		files:     files,
		dev:       dev,
		info:      info,
		opts:      o,
		own:       own,
		unit:      unit,
		total:     info.Total - info.Total%unit,
		largest:   largestSlab(info, o.PageSize, unit),
		turn:      make(chan struct{}, 1),
		epoch:     dev.Epoch(),
		nextID:    1,
		lostBelow: 1,
		slabs:     map[SlabID]*slab{},
		slots:     newSlots(),
	}, nil
}

// Device returns the device whose memory the arena leases.
func (a *Arena) Device() devices.Device { return a.dev }

// PageSize returns the unit of leases, in bytes.
func (a *Arena) PageSize() devices.Size { return a.opts.PageSize }

// Alloc leases n bytes, rounded up to pages, in one piece. The device is called only if no
// slab has room.
//
// Errors: ErrOutOfMemory (as *devices.OutOfMemoryError) if the device is full, and also if
// enough is free but not in one piece: AllocSome then returns less. ErrRange for 0 bytes,
// ErrClosed after Close, and errors of the device.
func (a *Arena) Alloc(ctx context.Context, n devices.Size) (Lease, error) {
	return a.AllocSome(ctx, n, n)
}

// AllocSome leases up to n bytes in one piece, but no fewer than least, both rounded up to
// pages. It returns n bytes if they are available in one piece, even if it has to ask the
// device; otherwise the longest piece available. Errors are those of Alloc.
func (a *Arena) AllocSome(ctx context.Context, n, least devices.Size) (Lease, error) {
	if n == 0 || least == 0 || least > n {
		return Lease{}, fmt.Errorf("lease between %d and %d bytes on %s: %w",
			uint64(least), uint64(n), a.info.Name, devices.ErrRange)
	}
	if least > a.largest {
		return Lease{}, a.outOfMemory(least)
	}
	least = roundUp(least, a.opts.PageSize)
	n = roundUp(min(n, a.largest), a.opts.PageSize)
	if l, ok, err := a.fromSlabs(n, false); ok || err != nil {
		return l, err
	}
	return a.growFor(ctx, n, least)
}

// Extend grows a lease in place, by up to by bytes (rounded up to pages), if the pages
// right after it are free. It returns by how many bytes the lease has grown: whole pages,
// possibly 0. The caller updates its own copy of the lease.
func (a *Arena) Extend(l Lease, by devices.Size) devices.Size {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, err := a.locate(l.Slab, l.Span.Range)
	if err != nil || by == 0 || l.Span.Mem != at.slab.mem || !at.taken() {
		return 0
	}
	end := at.page + at.n
	want := roundUp(min(by, at.slab.size), a.opts.PageSize)
	more := at.slab.pages.freeAfter(end, a.toPages(want))
	if more == 0 {
		return 0
	}
	a.take(at.slab, end, more)
	return a.toBytes(more)
}

// Free frees a lease, or any part of one that begins at a page and consists of whole pages;
// a part may span adjacent leases. Nothing is freed if any page of it is not leased.
//
// Errors: ErrNotLeased, ErrRange if the part does not consist of pages, ErrLost if the
// device has lost the slab (nothing remains to be freed then), ErrClosed. An error of the
// device in freeing the slab itself is returned too; the pages are free nevertheless.
func (a *Arena) Free(l Lease) error {
	a.mu.Lock()
	at, err := a.locate(l.Slab, l.Span.Range)
	switch {
	case err != nil:
	case l.Span.Mem != at.slab.mem:
		err = fmt.Errorf("slab %d of %s with foreign memory: %w", l.Slab, a.info.Name, ErrNotLeased)
	case !at.taken():
		err = fmt.Errorf("%v of slab %d of %s: %w", l.Span.Range, l.Slab, a.info.Name, ErrNotLeased)
	default:
		a.give(at.slab, at.page, at.n)
	}
	leaving := len(a.leaving) > 0
	a.mu.Unlock()
	if !leaving {
		return err
	}
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	if gone := a.sendOff(); err == nil {
		err = gone
	}
	return err
}

// Resolve rebuilds the lease of a stored record. It fails with ErrLost for a slab of an
// earlier epoch, ErrNotLeased if the slab is unknown or a page of the range is not leased,
// and ErrRange if the range does not consist of pages.
func (a *Arena) Resolve(id SlabID, r devices.Range) (Lease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, err := a.locate(id, r)
	if err != nil {
		return Lease{}, err
	}
	if !at.taken() {
		return Lease{}, fmt.Errorf("%v of slab %d of %s: %w", r, id, a.info.Name, ErrNotLeased)
	}
	return Lease{Slab: id, Span: devices.Span{Mem: at.slab.mem, Range: r}}, nil
}
