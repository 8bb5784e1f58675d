package region

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// Table is the memory that is registered in this process. It may be used
// from any goroutine.
type Table struct {
	engine *transport.Engine

	mu sync.Mutex
	// spaces are the registrations of each address space, sorted by their
	// start: the host's is that of the nil memory, and every device memory is
	// one.
	// +checklocks:mu
	spaces map[*devices.Memory][]*registration
	// +checklocks:mu
	stats Stats
}

// Stats counts what a table has done since it was made, but for Live.
type Stats struct {
	// Registrations is how often memory was registered anew.
	Registrations uint64 `json:"registrations"`
	// Aliases is how often memory was found registered already.
	Aliases uint64 `json:"aliases"`
	// Live is the registrations of now.
	Live uint64 `json:"live"`
}

// NewTable makes an empty table. The engine moves bytes from and to the
// buffers that are device memory; it is borrowed.
func NewTable(engine *transport.Engine) *Table {
	return &Table{engine: engine, spaces: map[*devices.Memory][]*registration{}}
}

// Stats returns a snapshot of the counters.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// registration is memory that is registered: one for each range that no
// other contains.
type registration struct {
	start, end uint64
	// refs is how many buffers use it; guarded by Table.mu.
	refs int
	// release gives back what the registration took.
	release func() error
}

// Alloc takes n bytes of page-aligned host memory, filled with zeros and
// locked in memory as far as the limit allows, and registers them.
func (t *Table) Alloc(n devices.Size) (*Buffer, error) {
	if n == 0 || n > 1<<46 {
		return nil, fmt.Errorf("register %d bytes of new memory: %w", uint64(n), devices.ErrRange)
	}
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %v to register: %w", n, err)
	}
	// Memory that may be swapped works, and is slower.
	_ = unix.Mlock(mem)
	return t.insert(nil, address(mem), n, &Buffer{host: mem}, func() error { return unix.Munmap(mem) }), nil
}

// Register registers the caller's bytes, which must stay where they are, and
// theirs, until the buffer is closed. Bytes that lie inside a registered range
// are an alias of it.
func (t *Table) Register(p []byte) (*Buffer, error) {
	if len(p) == 0 {
		return nil, fmt.Errorf("register no bytes: %w", devices.ErrRange)
	}
	return t.insert(nil, address(p), devices.Size(len(p)), &Buffer{host: slices.Clip(p)}, nil), nil
}

// RegisterDevice registers a part of device memory, and keeps a reference to
// it until the registration ends.
func (t *Table) RegisterDevice(s devices.Span) (*Buffer, error) {
	if s.Mem == nil || s.Len == 0 {
		return nil, fmt.Errorf("register no memory: %w", devices.ErrRange)
	}
	if err := s.Check(s.Mem.Device()); err != nil {
		return nil, fmt.Errorf("register memory: %w", err)
	}
	// The alias of a range holds the memory itself: the registration that it
	// lies in may have been made with another reference.
	s.Mem.Retain()
	return t.insert(s.Mem, uint64(s.Off), s.Len, &Buffer{dev: s}, nil), nil
}

// insert finds the registration that contains n bytes from start, or makes
// one, and completes the buffer. release belongs to a new registration.
func (t *Table) insert(space *devices.Memory, start uint64, n devices.Size, b *Buffer, release func() error) *Buffer {
	b.table, b.space, b.size = t, space, n
	t.mu.Lock()
	defer t.mu.Unlock()
	end := start + uint64(n)
	list := t.spaces[space]
	behind := sort.Search(len(list), func(i int) bool { return list[i].start > start })
	for i := behind - 1; i >= 0; i-- {
		if list[i].end >= end {
			list[i].refs++
			t.stats.Aliases++
			b.reg = list[i]
			return b
		}
	}
	b.reg = &registration{start: start, end: end, refs: 1, release: release}
	list = append(list, nil)
	copy(list[behind+1:], list[behind:])
	list[behind] = b.reg
	t.spaces[space] = list
	t.stats.Registrations++
	t.stats.Live++
	return b
}

// drop takes a buffer's reference away, and with the last one the
// registration.
func (t *Table) drop(b *Buffer) error {
	t.mu.Lock()
	b.reg.refs--
	last := b.reg.refs == 0
	if last {
		list := t.spaces[b.space]
		for i, r := range list {
			if r == b.reg {
				list = append(list[:i], list[i+1:]...)
				break
			}
		}
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
	if b.space != nil {
		errs = append(errs, b.space.Release())
	}
	return errors.Join(errs...)
}

// copyWith moves bytes between a buffer's span and another.
func (t *Table) copyWith(ctx context.Context, dst, src transport.Span) error {
	_, err := t.engine.Copy(ctx, dst, src)
	return err
}
