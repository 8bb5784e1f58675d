package transport

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

const (
	// regionSize is the maximum size of a region; boundaries of regions are
	// multiples of it, so that copies with different starts use the same regions.
	regionSize = 8 * devices.MiB
	// minDirect is the smallest part of a region that a device is asked to copy.
	// A driver may move fewer bytes with the processor, which must not touch a
	// file's pages: for CUDA that is up to 64 KiB.
	minDirect = 256 * devices.KiB
)

// FileID identifies a file, regardless of its names and of how often it is open.
type FileID struct{ Dev, Ino uint64 }

// FileIDOf returns the identity of a file from its stat.
func FileIDOf(st unix.Stat_t) FileID { return FileID{Dev: st.Dev, Ino: st.Ino} } //nolint:unconvert // Dev is 32 bits wide on other platforms

// regions holds the registered pages of all files. They are kept when a copy has
// ended, since registering costs more than copying.
//
// mu is held only to access the tables, never while a file is mapped or a device
// is called.
type regions struct {
	max devices.Size
	// pagemap reports which pages of this process are mapped; it is opened on
	// first use.
	pagemap func() (*pagemap, error)
	ended   atomic.Bool

	counts regionCounts

	mu sync.Mutex
	// +checklocks:mu
	files map[FileID]*pinnedFile
	// total is the bytes that are registered, or about to be.
	// +checklocks:mu
	total devices.Size
	// idle holds each *region without users, the most recently used at the back.
	// +checklocks:mu
	idle list.List
	// +checklocks:mu
	closed bool
}

// regionCounts holds the counters that RegisteredStats returns.
type regionCounts struct {
	hits, registered, failures, evicted, stale, bytes atomic.Uint64
}

// pinnedFile is one file in the table. regions.mu guards all fields.
type pinnedFile struct {
	id FileID
	// live holds the regions that can be found, by device, sorted and disjoint.
	live map[devices.Device][]*region
	// leaving holds the regions that were dropped and are not gone.
	leaving map[*region]struct{}
	// refused holds the devices that could not register pages of the file.
	refused map[devices.Device]bool
	// held counts the calls that keep pages of the file from being registered.
	held int
	// shared is true if another process may take pages from the file at any time.
	shared bool
}

func newRegions(limit devices.Size) *regions {
	r := &regions{max: limit, files: map[FileID]*pinnedFile{}}
	r.pagemap = sync.OnceValues(func() (*pagemap, error) {
		if r.ended.Load() {
			return nil, errEngineClosed()
		}
		return openPagemap()
	})
	return r
}

// +checklocks:r.mu
func (r *regions) fileLocked(id FileID) *pinnedFile {
	f := r.files[id]
	if f == nil {
		f = &pinnedFile{
			id: id, live: map[devices.Device][]*region{},
			leaving: map[*region]struct{}{}, refused: map[devices.Device]bool{},
		}
		r.files[id] = f
	}
	return f
}

// sweepLocked removes a file without state from the table.
//
// +checklocks:r.mu
func (r *regions) sweepLocked(f *pinnedFile) {
	if len(f.live) == 0 && len(f.leaving) == 0 && len(f.refused) == 0 && f.held == 0 && !f.shared {
		delete(r.files, f.id)
	}
}

// dropLocked removes a region from the table: it can't be found any more, and it
// ends with its last user. It reports whether there is none, so that the caller must
// end it.
//
// +checklocks:r.mu
func (r *regions) dropLocked(g *region) (unused bool) {
	if g.dropped {
		return false
	}
	g.dropped = true
	if g.idle != nil {
		r.idle.Remove(g.idle)
		g.idle = nil
	}
	f := g.file
	left := slices.DeleteFunc(f.live[g.device], func(other *region) bool { return other == g })
	if len(left) == 0 {
		delete(f.live, g.device)
	} else {
		f.live[g.device] = left
	}
	f.leaving[g] = struct{}{}
	return g.users == 0
}

// end releases the pages of dropped regions. The kernel refuses to unmap only
// what isn't mapped, so the error is ignored.
func (r *regions) end(dropped ...*region) {
	for _, g := range dropped {
		_ = g.unregister()
		r.mu.Lock()
		if !g.uncounted {
			r.total -= g.size
		}
		delete(g.file.leaving, g)
		r.sweepLocked(g.file)
		r.mu.Unlock()
		close(g.gone)
	}
}

// close releases all pages. No copy is in progress any more.
func (r *regions) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.forget(func(*region) bool { return true })
	r.ended.Store(true)
	pages, err := r.pagemap()
	if err != nil { // nothing was registered
		return nil //nolint:nilerr // without a pagemap nothing was registered
	}
	return pages.file.Close()
}

// forget drops the regions for which meant is true, and ends those without users.
func (r *regions) forget(meant func(*region) bool) {
	var unused []*region
	r.mu.Lock()
	for _, f := range r.files {
		unused = append(unused, r.dropOfLocked(f, meant)...)
	}
	r.mu.Unlock()
	r.end(unused...)
}

// dropOfLocked drops regions of a file and returns those without users, for the
// caller to end.
//
// +checklocks:r.mu
func (r *regions) dropOfLocked(f *pinnedFile, meant func(*region) bool) (unused []*region) {
	var all []*region
	for _, live := range f.live {
		all = append(all, live...)
	}
	for _, g := range all {
		if meant(g) && r.dropLocked(g) {
			unused = append(unused, g)
		}
	}
	return unused
}

func (r *regions) stats() RegisteredStats {
	r.mu.Lock()
	total := r.total
	r.mu.Unlock()
	c := &r.counts
	return RegisteredStats{
		Bytes: total, Hits: c.hits.Load(), Registered: c.registered.Load(), Failures: c.failures.Load(),
		Evicted: c.evicted.Load(), Stale: c.stale.Load(), DirectBytes: c.bytes.Load(),
	}
}
