package fs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// mappable holds the files that can be stored to through shared maps while write calls
// change them: those that are open for reading and writing and that the kernel does not
// serve itself.
type mappable struct {
	// count is the number of files. Usually it is 0, and calls skip the lookup.
	count atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	files map[metadata.Ino]*mapped
}

// mapped keeps the stores through maps of one file and the changes by write calls apart,
// since they share pages. A call bypasses the page cache. So if a page was read before the
// call and stored to through a map, writing it back whole would undo the call.
// docs/adr/0012-pages-beside-calls.md explains why the kernel alone does not prevent that,
// and how this type does:
//
//   - before a change, the kernel drops its pages of the range, writing back those that were
//     stored to;
//   - if it reads a page again before the change is made, the content of that page is kept
//     (stale) until the kernel has dropped that page too;
//   - if a page is written back meanwhile, only the bytes that differ from the kept content
//     count: the others were not stored.
type mapped struct {
	ino     metadata.Ino
	handles int // mappable.mu guards it

	// change is held by one call that changes content, during all its waits.
	change objects.Lane
	// turn is held shared while bytes are read for pages, and exclusively while bytes
	// change, so that each page is known to be older or newer than a change.
	turn sync.RWMutex

	mu sync.Mutex
	// pages is the set of pages that the kernel may have.
	// +checklocks:mu
	pages pageSet
	// earlier is set while the kernel may have any page from an earlier process.
	// +checklocks:mu
	earlier bool
	// stale holds, by page number, the content of the kernel's copy from before a change
	// that the copy does not include. turn guards the bytes.
	// +checklocks:mu
	stale map[uint64][]byte
	// readers is the set of handles by which the file can be read. A handle is removed only
	// while turn is held.
	// +checklocks:mu
	readers map[*fileHandle]bool
}

// open adds a handle through which a file can be stored to by a map.
func (m *mappable) open(ino metadata.Ino, h *fileHandle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = map[metadata.Ino]*mapped{}
	}
	file := m.files[ino]
	if file == nil {
		file = &mapped{
			ino: ino, change: objects.NewLane(1),
			pages: pageSet{}, stale: map[uint64][]byte{}, readers: map[*fileHandle]bool{},
		}
		m.files[ino] = file
		m.count.Add(1)
	}
	file.handles++
	h.mapped = file
	file.mu.Lock()
	defer file.mu.Unlock()
	file.readers[h] = true
}

// close removes a handle, if it was added.
func (m *mappable) close(h *fileHandle) {
	file := h.mapped
	if file == nil {
		return
	}
	file.remove(h)
	m.mu.Lock()
	defer m.mu.Unlock()
	if file.handles--; file.handles == 0 {
		delete(m.files, file.ino)
		m.count.Add(-1)
	}
}

// remove removes a handle, after waiting for all reads through it.
func (m *mapped) remove(h *fileHandle) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.readers, h)
}

// of returns the file with an inode number, or nil if no program can store to it through a
// map.
func (m *mappable) of(ino metadata.Ino) *mapped {
	if m.count.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[ino]
}

// read reads for the kernel's pages. The bytes are a copy, so that a later change is not
// partly included.
func (m *mapped) read(ctx context.Context, h *fileHandle, off uint64, buf []byte) (fuse.ReadResult, error) {
	m.turn.RLock()
	defer m.turn.RUnlock()
	result, err := h.ahead.read(ctx, off, buf)
	if err != nil {
		return nil, err
	}
	first, last := pagesOf(off, uint64(len(buf)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pages.add(first, last)
	for p := first; p <= last && len(m.stale) > 0; p++ {
		delete(m.stale, p)
	}
	return result, nil
}

// hasPages reports whether the kernel may have pages of the file.
func (m *mapped) hasPages() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.earlier || len(m.pages) > 0
}

// adopt records whether the kernel may have pages that it has read from an earlier process.
func (m *mapped) adopt(earlier bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.earlier = earlier
}

// before makes a change of n bytes at off by calling apply. A signal ends only the wait for
// other changes: a change that need not wait proceeds, so that a call of several requests is
// not cut short by a signal that arrived during an earlier one.
//
// Errors: those of reading the file and of apply, the context's.
func (m *mapped) before(ctx context.Context, k Kernel, off, n uint64, apply func() error) error {
	if n == 0 {
		return apply()
	}
	if err := m.change.Enter(ctx); err != nil {
		return err
	}
	defer m.change.Leave()
	first, last := pagesOf(off, n)
	if m.forget(first, last) {
		k.InvalidateRange(m.ino, off, n)
	}
	again, err := m.make(ctx, first, last, apply)
	if len(again) > 0 {
		k.InvalidateRange(m.ino, off, n)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range again {
			delete(m.stale, p)
		}
	}
	return err
}

// forget marks pages as dropped, which the caller then makes the kernel drop; any reports
// whether there were any.
func (m *mapped) forget(first, last uint64) (any bool) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	pages := m.pages.within(first, last)
	m.pages.remove(pages)
	return m.earlier || len(pages) > 0
}

// make calls apply, and returns the pages of which the kernel has the content from before
// the change.
func (m *mapped) make(ctx context.Context, first, last uint64, apply func() error) (again []uint64, err error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	again = m.pages.within(first, last)
	m.mu.Unlock()
	if len(again) == 0 {
		return nil, apply()
	}
	ctx = context.WithoutCancel(ctx)
	old := map[uint64][]byte{}
	for _, p := range again {
		if old[p], err = m.pageAt(ctx, p); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	maps.Copy(m.stale, old)
	m.mu.Unlock()
	return again, apply()
}

// pageAt reads a page, with zeros after the end of the file. The caller holds turn.
func (m *mapped) pageAt(ctx context.Context, number uint64) ([]byte, error) {
	m.mu.Lock()
	var src source
	for h := range m.readers {
		src = h.src
		break
	}
	m.mu.Unlock()
	p := make([]byte, page)
	if src == nil { // no handle is left to store through
		return p, nil
	}
	_, err := src.Peek(ctx, p, number*page)
	return p, err
}

// writeBack writes pages of the kernel with apply, except for bytes that were not stored
// and that a call has replaced.
func (m *mapped) writeBack(ctx context.Context, off uint64, data [][]byte, apply func(data [][]byte) fuse.Status) (fuse.Status, error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	n := 0
	for _, piece := range data {
		n += len(piece)
	}
	if n == 0 {
		return apply(data), nil
	}
	first, last := pagesOf(off, uint64(n))
	m.mu.Lock()
	stale := map[uint64][]byte{}
	for p := first; p <= last && len(m.stale) > 0; p++ {
		if old := m.stale[p]; old != nil {
			stale[p] = old
		}
	}
	m.mu.Unlock()
	if len(stale) == 0 {
		return apply(data), nil
	}
	all := slices.Concat(data...)
	for p, old := range stale {
		now, err := m.pageAt(ctx, p)
		if err != nil {
			return 0, err
		}
		from, to := max(p*page, off), min((p+1)*page, off+uint64(n))
		settle(all[from-off:to-off], old[from%page:], now[from%page:])
	}
	return apply([][]byte{all}), nil
}

// settle replaces the bytes of a stored page that are the same as in old, and so were not
// stored, with those of now. old becomes the kernel's copy.
func settle(stored, old, now []byte) {
	for i, b := range stored {
		if b == old[i] {
			stored[i] = now[i]
		}
		old[i] = b
	}
}

// cut changes the length of the file with apply. The kernel drops its pages after the end,
// and zeroes the rest of the last one.
func (m *mapped) cut(size uint64, apply func() (objects.Attr, error)) (objects.Attr, error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	a, err := apply()
	if err != nil {
		return a, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, old := range m.stale {
		if start := p * page; start >= size {
			delete(m.stale, p)
		} else if start+page > size {
			clear(old[size-start:])
		}
	}
	return a, nil
}
