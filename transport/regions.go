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
	// regionSize is the most that one region holds, and what the boundaries
	// of regions are multiples of, so that copies which begin anywhere meet
	// the same ones.
	regionSize = 8 * devices.MiB
	// minDirect is the least that a device is given of a region. A driver may
	// move fewer bytes with the processor, which must not touch a file's
	// pages: for CUDA that is 64 KiB.
	minDirect = 256 * devices.KiB
)

// FileID is a file, whatever it is called and however often it is open.
type FileID struct{ Dev, Ino uint64 }

// FileIDOf reads it from what the kernel knows of the file.
func FileIDOf(st unix.Stat_t) FileID { return FileID{Dev: st.Dev, Ino: st.Ino} } //nolint:unconvert // Dev is 32 bits wide elsewhere

// regions are the registered pages of all files. They are kept when a copy
// has ended, since registering costs more than copying.
//
// mu is held for looks into the tables only, never while a file is mapped or
// a device is called.
type regions struct {
	max devices.Size
	// pagemap tells which pages of this process are mapped; opened by the
	// first who needs it.
	pagemap func() (*pagemap, error)
	ended   atomic.Bool

	counts regionCounts

	mu sync.Mutex
	// +checklocks:mu
	files map[FileID]*pinnedFile
	// total is the bytes that are registered, or about to be.
	// +checklocks:mu
	total devices.Size
	// idle are the *region that nobody uses, the one that was used last at
	// the back.
	// +checklocks:mu
	idle list.List
	// +checklocks:mu
	closed bool
}

// regionCounts has what RegisteredStats returns.
type regionCounts struct {
	hits, registered, failures, evicted, stale, bytes atomic.Uint64
}

// pinnedFile is one file in the table. regions.mu guards all fields.
type pinnedFile struct {
	id FileID
	// live are the regions to be found, by device, in order, apart.
	live map[devices.Device][]*region
	// leaving are those that were dropped and are not gone.
	leaving map[*region]struct{}
	// refused are the devices that could not register pages of the file.
	refused map[devices.Device]bool
	// held counts those who keep pages of the file from being registered.
	held int
	// shared says that somebody else may take pages from the file at will.
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

// sweepLocked forgets a file of which nothing is known any more.
//
// +checklocks:r.mu
func (r *regions) sweepLocked(f *pinnedFile) {
	if len(f.live) == 0 && len(f.leaving) == 0 && len(f.refused) == 0 && f.held == 0 && !f.shared {
		delete(r.files, f.id)
	}
}

// drop takes a region out of the table: nobody finds it any more, and it goes
// with its last user, of which the caller is one.
func (r *regions) drop(g *region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked(g)
}

// dropLocked says whether the caller is to end the region, which nobody uses.
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

// end gives a dropped region's pages back. The kernel refuses to unmap only
// what isn't mapped, so there is nobody to tell.
func (r *regions) end(g *region) {
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

// close gives all pages back. Nobody copies any more.
func (r *regions) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.forget(func(*region) bool { return true })
	r.ended.Store(true)
	pages, err := r.pagemap()
	if err != nil { // nothing was registered
		return nil //nolint:nilerr // it has no consequence any more
	}
	return pages.file.Close()
}

// forget drops the regions that are meant, and ends those that nobody uses.
func (r *regions) forget(meant func(*region) bool) {
	var unused []*region
	r.mu.Lock()
	for _, f := range r.files {
		unused = append(unused, r.dropOfLocked(f, meant)...)
	}
	r.mu.Unlock()
	for _, g := range unused {
		r.end(g)
	}
}

// dropOfLocked drops regions of a file and returns those that nobody uses, for
// the caller to end.
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
