package fs

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// mappable has the files that can be stored to through shared maps while calls
// change them: those that are open for reading and writing and that the kernel
// does not serve by itself.
type mappable struct {
	// count is the number of files; mostly 0, and then no call need look for one.
	count atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	files map[metadata.Ino]*mapped
}

// mapped keeps the stores through maps of one file and the changes by calls
// apart, which share pages. A call goes past the kernel's pages, so a page that
// was read before it and stored to writes back whole, with what the call has
// replaced. docs/adr/0012-pages-beside-calls.md tells why the kernel alone does
// not prevent that, and how this does:
//
//   - before a change the kernel drops its pages of the range, writing back
//     what was stored;
//   - of a page that it reads again before the change is made, its content then
//     is kept (stale) until the kernel has dropped that page too;
//   - a page that is written back meanwhile counts only where it differs from
//     what is kept: the rest was not stored.
type mapped struct {
	ino     metadata.Ino
	handles int // mappable.mu guards it

	// change is held by one call that changes content, whatever it waits for.
	change chan struct{}
	// turn is held while bytes are read for pages, shared, and while bytes
	// change, so that each page is known to be older or younger than a change.
	turn sync.RWMutex

	mu sync.Mutex
	// pages are those that the kernel may have.
	// +checklocks:mu
	pages pageSet
	// stale holds, by page, what the kernel's copy had before a change that it
	// does not have. turn guards the bytes.
	// +checklocks:mu
	stale map[uint64][]byte
	// readers are the handles, by any of which the file can be read; one goes
	// only with turn held.
	// +checklocks:mu
	readers map[*fileHandle]bool
}

// open adds a handle by which a file can be stored to through a map.
func (m *mappable) open(ino metadata.Ino, h *fileHandle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = map[metadata.Ino]*mapped{}
	}
	file := m.files[ino]
	if file == nil {
		file = &mapped{
			ino: ino, change: make(chan struct{}, 1),
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

// close takes a handle out again, if it was in.
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

// remove waits until nothing is read by the handle any more.
func (m *mapped) remove(h *fileHandle) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.readers, h)
}

// of returns the file with a number; nil is one that no program can store to.
func (m *mappable) of(ino metadata.Ino) *mapped {
	if m.count.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[ino]
}

// read reads for the kernel's pages. The bytes are a copy, so that a change
// that follows is not in a part of them.
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

// hasPages says whether the kernel may have pages of the file.
func (m *mapped) hasPages() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pages) > 0
}

// begin waits for its turn to change content. A signal ends the wait only: a
// change that need not wait goes on, so that a call of several requests is not
// cut short by a signal that came during an earlier one.
//
// Errors: the context's.
func (m *mapped) begin(ctx context.Context) error {
	select {
	case m.change <- struct{}{}:
		return nil
	default:
	}
	select {
	case m.change <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// before makes a change of n bytes at off, which apply does.
//
// Errors: those of reading the file and of apply, the context's.
func (m *mapped) before(ctx context.Context, k Kernel, off, n uint64, apply func() error) error {
	if n == 0 {
		return apply()
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer func() { <-m.change }()
	first, last := pagesOf(off, n)
	if m.forget(first, last) {
		k.InvalidateRange(m.ino, off, n)
	}
	again, err := m.make(context.WithoutCancel(ctx), first, last, apply)
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

// forget takes pages for dropped, which the caller then has dropped; any says
// whether there was one.
func (m *mapped) forget(first, last uint64) (any bool) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	pages := m.pages.within(first, last)
	m.pages.remove(pages)
	return len(pages) > 0
}

// make calls apply, and returns the pages that the kernel still has as they
// were before.
func (m *mapped) make(ctx context.Context, first, last uint64, apply func() error) (again []uint64, err error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	again = m.pages.within(first, last)
	m.mu.Unlock()
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

// pageAt reads a page, with zeros behind the end. The caller has the turn.
func (m *mapped) pageAt(ctx context.Context, number uint64) ([]byte, error) {
	m.mu.Lock()
	var src source
	for h := range m.readers {
		src = h.src
		break
	}
	m.mu.Unlock()
	p := make([]byte, page)
	if src == nil { // nobody can store any more
		return p, nil
	}
	_, err := src.Peek(ctx, p, number*page)
	return p, err
}

// writeBack writes pages of the kernel's with apply, less what was not stored and
// a call has replaced.
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
	all := make([]byte, 0, n)
	for _, piece := range data {
		all = append(all, piece...)
	}
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

// settle replaces in a stored page what was not stored since it was old by what is
// there now. The old page becomes what the kernel has.
func settle(stored, old, now []byte) {
	for i, b := range stored {
		if b == old[i] {
			stored[i] = now[i]
		}
		old[i] = b
	}
}

// cut changes the length of the file with apply. The kernel drops its pages
// behind the end, and has zeros in the rest of the last one.
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
