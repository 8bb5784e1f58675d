package content

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/tidwall/btree"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
)

// extent is a range of an object in one lease. Its offset and length are whole pages.
//
// INVARIANT: only its first written bytes hold data of this object. The rest may hold old
// bytes of another object, is never read, and counts as zeros.
type extent struct {
	off     uint64
	len     uint64
	written uint64
	lease   arena.Lease
	// whole is the allocation that the extent is a part of, if it is not in the arena.
	whole *whole
}

func (e extent) end() uint64 { return e.off + e.len }

// part returns the extent's range [from, to), in whole pages of the object.
func (e extent) part(from, to uint64) extent {
	p := extent{off: from, len: to - from, lease: e.lease, whole: e.whole}
	p.lease.Span.Off += devices.Offset(from - e.off)
	p.lease.Span.Len = devices.Size(to - from)
	if data := e.off + e.written; data > from {
		p.written = min(data-from, p.len)
	}
	return p
}

// span returns the device memory of n bytes of the object at off.
func (e extent) span(off, n uint64) devices.Span {
	s := e.lease.Span
	s.Off += devices.Offset(off - e.off)
	s.Len = devices.Size(n)
	return s
}

// Extents is content in device memory.
//
// The object's lane serializes changes, so a change reads the map without mu and locks it
// only to alter it.
type Extents struct {
	tier   *Tier
	engine *transport.Engine
	epoch  metadata.Epoch // of the device when the content began
	page   uint64
	gate   gate
	logf   func(msg string, err error)

	mu    sync.RWMutex
	tree  btree.Map[uint64, extent] // by offset; never overlapping
	bytes uint64                    // sum of the lengths
	// ahead is the offset from which memory was allocated ahead of need; 0 for none.
	ahead uint64
	// bad holds the ranges that a failed copy left with unknown bytes.
	bad []devices.Range
	// wholes is the sum of the lengths that are not in the arena.
	wholes uint64
	// pinned is the number of leading bytes that another process may have mapped: they
	// stay where they are. The object's lane guards it.
	pinned uint64
	kept   keeping
}

// NewExtents returns empty content of the tier, in its current epoch. Errors of freeing its
// memory go to logf.
func NewExtents(t *Tier, e *transport.Engine, logf func(string, error)) *Extents {
	x := &Extents{tier: t, engine: e, epoch: t.Epoch(), page: uint64(t.arena.PageSize()), logf: logf}
	x.kept = keeping{table: t.table(x.epoch), entry: -1}
	return x
}

// CheckEpoch fails when the device has lost the memory that the content began in.
//
// Errors: ErrLost.
func (x *Extents) CheckEpoch() error {
	if x.tier.Epoch() != x.epoch {
		return ErrLost
	}
	return nil
}

// Load rebuilds the content of an object from its records, before it has readers.
//
// Errors: ErrLost if the memory of an earlier process does not match them.
func (x *Extents) Load(ino uint64, maps []metadata.Mapping) error {
	for _, m := range maps {
		lease, err := x.tier.arena.Resolve(arena.SlabID(m.Allocation),
			devices.Range{Off: devices.Offset(m.Off), Len: devices.Size(m.Len)})
		if err != nil && x.kept.table != nil {
			err = errors.Join(ErrLost, err)
		}
		if err != nil {
			return fmt.Errorf("find memory of %s by its record: %w", x.tier.Name, err)
		}
		x.insertLocked(extent{off: m.FileOff, len: m.Len, written: m.Written, lease: lease})
	}
	return x.loadKept(ino)
}

func (x *Extents) insertLocked(e extent) {
	x.tree.Set(e.off, e)
	x.bytes += e.len
	if e.whole != nil {
		x.wholes += e.len
	}
}

func (x *Extents) removeLocked(e extent) {
	x.tree.Delete(e.off)
	x.bytes -= e.len
	if e.whole != nil {
		x.wholes -= e.len
	}
}

// at returns the extent that holds the byte at off.
func (x *Extents) at(off uint64) (extent, bool) {
	var found extent
	var ok bool
	x.tree.Descend(off, func(_ uint64, e extent) bool {
		found, ok = e, off < e.end()
		return false
	})
	return found, ok
}

// from visits the extents that hold a byte of [off, end), in order.
func (x *Extents) from(off, end uint64, visit func(e extent) bool) {
	start := off
	if e, ok := x.at(off); ok {
		start = e.off
	}
	x.tree.Ascend(start, func(_ uint64, e extent) bool {
		return e.off < end && visit(e)
	})
}

// overlapping returns the extents that from visits, for changes that alter the map.
func (x *Extents) overlapping(off, end uint64) []extent {
	var found []extent
	x.from(off, end, func(e extent) bool {
		found = append(found, e)
		return true
	})
	return found
}

// free frees an extent's memory once no reader can be using it.
func (x *Extents) free(e extent) {
	x.unlabel(e)
	x.tier.late.begin()
	x.gate.after(func() {
		defer x.tier.late.end()
		var err error
		if e.whole != nil {
			err = e.whole.drop(e.len)
		} else {
			err = x.tier.arena.Free(e.lease)
		}
		if err != nil && !errors.Is(err, devices.ErrLost) {
			x.logf("could not free device memory", err)
		}
	})
}

// Find implements Content.
func (x *Extents) Find(off, n uint64, _ bool) (Range, error) {
	if err := x.CheckEpoch(); err != nil {
		return Range{}, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	end := off + n
	for _, r := range x.bad {
		if uint64(r.Off) < end && off < uint64(r.End()) {
			return Range{}, fmt.Errorf("read range %v: %w", r, ErrDamaged)
		}
	}
	seen, at := Range{N: n}, off
	hole := func(to uint64) {
		if to > at {
			seen.add(Piece{Off: at, N: to - at, Hole: true})
			at = to
		}
	}
	x.from(off, end, func(e extent) bool {
		hole(min(e.off, end))
		if data := min(e.off+e.written, end); data > at {
			s := e.span(at, data-at)
			seen.add(Piece{Off: at, N: data - at, Span: transport.DeviceSpan(s), Dev: s})
			at = data
		}
		return true
	})
	hole(end)
	seen.in.enter(&x.gate)
	return seen, nil
}

// Usage implements Content.
func (x *Extents) Usage() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.bytes
}

// Backing implements Content.
func (x *Extents) Backing() *os.File { return nil }

// Settle implements Content.
func (x *Extents) Settle(size uint64) []metadata.Mapping {
	if x.ahead > 0 {
		x.dropTail(max(x.ahead, x.ceil(size)))
		x.ahead = 0
	}
	return x.records()
}

// Mappings returns the records of the content as it is now. It may be called at any time.
func (x *Extents) Mappings() []metadata.Mapping {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.records()
}

// records describes the extents as they are.
func (x *Extents) records() []metadata.Mapping {
	var maps []metadata.Mapping
	x.tree.Scan(func(_ uint64, e extent) bool {
		maps = append(maps, metadata.Mapping{
			FileOff: e.off, Len: e.len, Written: e.written,
			Device: x.tier.Name, Epoch: x.epoch,
			Allocation: metadata.AllocationID(e.lease.Slab), Off: uint64(e.lease.Span.Off),
		})
		return true
	})
	return maps
}

// Discard implements Content.
func (x *Extents) Discard() error {
	x.dropTail(0)
	x.endKept()
	return nil
}

// dropTail frees every page from off, a page boundary, to the end. The last page that a
// file can have ends beyond the largest size.
func (x *Extents) dropTail(off uint64) {
	x.drop(off, x.floor(^uint64(0)), false)
}

// drop frees the pages of [from, to), both page boundaries, or keeps them as memory that
// holds no data.
func (x *Extents) drop(from, to uint64, keep bool) {
	x.mu.Lock()
	freed := x.dropLocked(from, to, keep)
	x.mu.Unlock()
	for _, e := range freed {
		x.free(e)
	}
}

// dropLocked is drop, except that the caller frees the extents that it returns.
func (x *Extents) dropLocked(from, to uint64, keep bool) (freed []extent) {
	for _, e := range x.overlapping(from, to) {
		x.removeLocked(e)
		a, b := max(from, e.off), min(to, e.end())
		if a > e.off {
			x.insertLocked(e.part(e.off, a))
		}
		if b < e.end() {
			x.insertLocked(e.part(b, e.end()))
		}
		middle := e.part(a, b)
		if !keep {
			freed = append(freed, middle)
			continue
		}
		had := middle.off + middle.written
		middle.written = 0
		x.insertLocked(middle)
		x.relabel(middle, had, middle.off)
	}
	if x.bytes == 0 {
		x.flag(stateLoose, false)
	}
	return freed
}

func (x *Extents) floor(off uint64) uint64 { return off &^ (x.page - 1) }
func (x *Extents) ceil(off uint64) uint64  { return (off + x.page - 1) &^ (x.page - 1) }
