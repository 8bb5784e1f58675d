package region

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// Table holds the memory that is registered in this process. It may be used from
// any goroutine.
type Table struct {
	engine *transport.Engine

	mu sync.Mutex
	// spaces holds the registrations of each address space, sorted by their
	// start.
	// +checklocks:mu
	spaces map[space][]*registration
	// +checklocks:mu
	stats Stats
}

// space is an address space for offsets: the host's addresses (the zero value),
// one device memory, or one file.
type space struct {
	mem  *devices.Memory
	file transport.FileID
}

// Stats counts a table's operations since it was made; Live is a gauge.
type Stats struct {
	// Registrations counts new registrations of memory.
	Registrations uint64 `json:"registrations"`
	// Aliases counts buffers whose memory was registered already.
	Aliases uint64 `json:"aliases"`
	// Live is the current number of registrations.
	Live uint64 `json:"live"`
}

// NewTable makes an empty table. The engine moves bytes from and to buffers in
// device memory; it is borrowed.
func NewTable(engine *transport.Engine) *Table {
	return &Table{engine: engine, spaces: map[space][]*registration{}}
}

// Stats returns a snapshot of the counters.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// registration is registered memory: one for each range that is not contained in
// another.
type registration struct {
	start, end uint64
	// refs is the number of buffers that use it; guarded by Table.mu.
	refs int
	// file holds memory of Alloc, from its start; nil for every other kind of
	// memory.
	file *os.File
	// release releases what the registration acquired.
	release func() error
}

// Register registers the caller's bytes, which must stay where they are, and
// theirs, until the buffer is closed. Bytes inside a registered range are an
// alias of it.
func (t *Table) Register(p []byte) (*Buffer, error) {
	if len(p) == 0 {
		return nil, fmt.Errorf("register an empty buffer: %w", devices.ErrRange)
	}
	return t.insert(space{}, Address(p), devices.Size(len(p)), &Buffer{host: slices.Clip(p)}, nil), nil
}

// RegisterDevice registers a part of device memory, and keeps a reference to
// it until the registration ends.
func (t *Table) RegisterDevice(s devices.Span) (*Buffer, error) {
	if s.Mem == nil || s.Len == 0 {
		return nil, fmt.Errorf("register empty device memory: %w", devices.ErrRange)
	}
	if err := s.Check(s.Mem.Device()); err != nil {
		return nil, fmt.Errorf("register memory: %w", err)
	}
	// The alias of a range holds the memory itself: the registration that
	// contains it may have been made with another reference.
	s.Mem.Retain()
	b := &Buffer{rest: transport.DeviceSpan(s), dev: s, own: s.Mem.Release}
	return t.insert(space{mem: s.Mem}, uint64(s.Off), s.Len, b, nil), nil
}

// insert finds the registration that contains n bytes from start, or makes one,
// and completes the buffer. fresh is used for a new registration, or nil.
func (t *Table) insert(in space, start uint64, n devices.Size, b *Buffer, fresh *registration) *Buffer {
	b.table, b.space, b.start, b.size = t, in, start, n
	t.mu.Lock()
	defer t.mu.Unlock()
	end := start + uint64(n)
	list := t.spaces[in]
	behind := sort.Search(len(list), func(i int) bool { return list[i].start > start })
	for i := behind - 1; i >= 0; i-- {
		if list[i].end >= end {
			list[i].refs++
			t.stats.Aliases++
			b.reg = list[i]
			return b
		}
	}
	if fresh == nil {
		fresh = &registration{}
	}
	fresh.start, fresh.end, fresh.refs = start, end, 1
	b.reg = fresh
	t.spaces[in] = slices.Insert(list, behind, b.reg)
	t.stats.Registrations++
	t.stats.Live++
	return b
}

// drop removes a buffer's reference, and with the last one the registration.
func (t *Table) drop(b *Buffer) error {
	t.mu.Lock()
	b.reg.refs--
	last := b.reg.refs == 0
	if last {
		list := slices.DeleteFunc(t.spaces[b.space], func(r *registration) bool { return r == b.reg })
		if t.spaces[b.space] = list; len(list) == 0 {
			delete(t.spaces, b.space)
		}
		t.stats.Live--
	}
	t.mu.Unlock()
	var errs []error
	if last && b.reg.release != nil {
		errs = append(errs, b.reg.release())
	}
	if b.own != nil {
		errs = append(errs, b.own())
	}
	return errors.Join(errs...)
}
