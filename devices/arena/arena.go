package arena

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// SlabID names a slab. An arena never uses one twice.
type SlabID uint64

// Lease is a range of pages that the holder may use until it frees them. It
// is plain data: the arena keeps nothing for it, and it may be written to a
// record and rebuilt with Resolve.
type Lease struct {
	Slab SlabID
	// Span is the place of the bytes. It begins at a page and has whole pages.
	Span devices.Span
}

// Arena leases pages of one device's memory. All methods may be called from
// any goroutine.
type Arena struct {
	dev     devices.Device
	info    devices.Info
	opts    Options
	total   devices.Size // page multiple
	largest devices.Size // page multiple, the largest possible slab

	// turn holds one token: who has it may call the device.
	turn chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	epoch devices.Epoch
	// lostBelow is the first id that is not from an epoch that is gone.
	// +checklocks:mu
	lostBelow SlabID
	// +checklocks:mu
	nextID SlabID
	// +checklocks:mu
	slabs map[SlabID]*slab
	// +checklocks:mu
	slots *slots
	// leased counts the bytes that are in use.
	// +checklocks:mu
	leased devices.Size
	// held counts those of all slabs, also of one that is being taken or given
	// back.
	// +checklocks:mu
	held devices.Size
	// retained counts those of wholly free slabs.
	// +checklocks:mu
	retained devices.Size
	// spares are the wholly free slabs that are larger than the usual.
	// +checklocks:mu
	spares []*slab
	// leaving are slabs that nobody can find any more and whose memory the
	// next holder of the turn gives back.
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
	// spare says that the slab is among the spares: the slot tree does not
	// offer it.
	spare bool
	// idle says that the slab is wholly free, and was at the last Trim.
	idle bool
}

func (s *slab) whollyFree() bool { return s.pages.free == s.pages.pages }

// offer is the longest run that the slot tree may give away.
func (s *slab) offer() uint32 {
	if s.spare {
		return 0
	}
	return s.pages.longest()
}

// New makes an arena over a device. It takes no memory yet.
func New(dev devices.Device, o Options) (*Arena, error) {
	info := dev.Info()
	o, err := o.withDefaults(info)
	if err != nil {
		return nil, err
	}
	return &Arena{
		dev:       dev,
		info:      info,
		opts:      o,
		total:     roundDown(info.Total, o.PageSize),
		largest:   largestSlab(info, o.PageSize),
		turn:      make(chan struct{}, 1),
		epoch:     dev.Epoch(),
		nextID:    1,
		lostBelow: 1,
		slabs:     map[SlabID]*slab{},
		slots:     newSlots(),
	}, nil
}

// Device returns the device that the arena is over.
func (a *Arena) Device() devices.Device { return a.dev }

// PageSize returns the unit of leases.
func (a *Arena) PageSize() devices.Size { return a.opts.PageSize }

// Alloc leases n bytes, rounded up to pages, in one piece. The device is
// called only where no slab has room.
//
// Errors: ErrOutOfMemory (as *devices.OutOfMemoryError) when the device is
// full, and also when enough is free but not in one piece: AllocSome then has
// less to give. ErrRange for 0 bytes, ErrClosed after Close, and what the
// device reports.
func (a *Arena) Alloc(ctx context.Context, n devices.Size) (Lease, error) {
	return a.AllocSome(ctx, n, n)
}

// AllocSome leases up to n bytes in one piece, at least least, both rounded
// up to pages. It gives n where n can be had in one piece, at the price of
// asking the device; otherwise the longest piece there is. Errors are those
// of Alloc.
func (a *Arena) AllocSome(ctx context.Context, n, least devices.Size) (Lease, error) {
	if n == 0 || least == 0 || least > n {
		return Lease{}, fmt.Errorf("lease of %d to %d bytes on %s: %w",
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

// Extend grows a lease in place, by up to by bytes (rounded up to pages), if
// the pages right behind it are free. It returns how much longer the lease is
// now: whole pages, maybe 0. The caller lengthens its own copy of the lease.
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

// Free gives back a lease, or any part of one that begins at a page and has
// whole pages; a part may span neighbouring leases. Nothing is given back
// where any page of it is not leased.
//
// Errors: ErrNotLeased, ErrRange where the part is not made of pages, ErrLost
// where the device has lost the slab (nothing is left to do then), ErrClosed.
// What the device reports when the slab itself goes back is returned too; the
// pages are free all the same.
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

// Resolve rebuilds the lease of a stored record. It fails with ErrLost for a
// slab of an epoch that is gone, ErrNotLeased where the slab is unknown or a
// page of the range is not leased, and ErrRange where the range is not made
// of pages.
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
