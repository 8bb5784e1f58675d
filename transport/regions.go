package transport

import (
	"container/list"
	"context"
	"errors"
	"os"
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
	pagemap func() (*os.File, error)

	hits, registered, failures, evicted, stale, bytes atomic.Uint64

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
}

func newRegions(limit devices.Size) *regions {
	return &regions{
		max: limit, files: map[FileID]*pinnedFile{},
		pagemap: sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/pagemap") }),
	}
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
	if len(f.live) == 0 && len(f.leaving) == 0 && len(f.refused) == 0 && f.held == 0 {
		delete(r.files, f.id)
	}
}

// lease returns a region that holds the beginning of a stretch, and how many
// bytes of the stretch it holds. It stays until leave. Without a region those
// bytes are to go another way.
func (r *regions) lease(ctx context.Context, w want) (*region, devices.Size) {
	for {
		c := r.claim(w)
		if c.region == nil {
			return nil, c.n
		}
		w := w
		w.n = c.n
		if c.fresh {
			return r.make(c, w), c.n
		}
		select {
		case <-c.region.ready:
		case <-ctx.Done():
			r.leave(c.region)
			return nil, c.n
		}
		if r.usable(c.region, w) {
			r.hits.Add(1)
			return c.region, c.n
		}
		r.drop(c.region)
		r.leave(c.region)
	}
}

// usable says whether a region that was made before is good for a stretch.
func (r *regions) usable(g *region, w want) bool {
	if g.mem == nil {
		return false
	}
	if now := g.device.Epoch(); now != g.epoch {
		r.stale.Add(1)
		r.forget(func(other *region) bool { return other.device == g.device && other.epoch != now })
		return false
	}
	if pagemap, err := r.pagemap(); err != nil || !g.holds(pagemap, w.off, w.n) {
		r.stale.Add(1)
		return false
	}
	return true
}

// claim is what lease finds: a region, or none, for the first n bytes.
type claim struct {
	region *region
	n      devices.Size
	// fresh says that the caller is to make the region, after the victims,
	// whose room it gets, are gone.
	fresh   bool
	victims []*region
}

// claim finds the region that holds the beginning of a stretch, or makes room
// for one in the gap where there is none.
func (r *regions) claim(w want) claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.fileLocked(w.id)
	defer r.sweepLocked(f)
	if r.closed || f.held > 0 {
		return claim{n: w.n}
	}
	live := f.live[w.device]
	next, _ := slices.BinarySearchFunc(live, w.off, func(g *region, off uint64) int {
		if g.end() <= off {
			return -1
		}
		return 1
	})
	page := uint64(os.Getpagesize())
	from, to := w.off/page*page, (w.end()+page-1)/page*page
	if next < len(live) && live[next].off <= w.off {
		g := live[next]
		n := min(w.n, devices.Size(g.end()-w.off))
		if n < minDirect {
			return claim{n: n}
		}
		g.users++
		if g.idle != nil {
			r.idle.Remove(g.idle)
			g.idle = nil
		}
		return claim{region: g, n: n}
	}
	if next < len(live) {
		to = min(to, live[next].off)
	}
	n, size := min(w.n, devices.Size(to-w.off)), devices.Size(to-from)
	if n < minDirect || f.refused[w.device] {
		return claim{n: n}
	}
	victims, ok := r.roomLocked(f, size)
	if !ok {
		return claim{n: n}
	}
	g := newRegion(f, w.device, from, size)
	f.live[w.device] = slices.Insert(live, next, g)
	r.total += size
	return claim{region: g, n: n, fresh: true, victims: victims}
}

// roomLocked drops idle regions until there is room for size bytes, those that
// were used longest ago first. Regions of the same file stay: a file that is
// longer than the limit, read from end to end again and again, would else
// never find a page registered.
//
// +checklocks:r.mu
func (r *regions) roomLocked(f *pinnedFile, size devices.Size) (victims []*region, ok bool) {
	var freed devices.Size
	for e := r.idle.Front(); e != nil && r.total-freed+size > r.max; e = e.Next() {
		if g, is := e.Value.(*region); is && g.file != f {
			victims = append(victims, g)
			freed += g.size
		}
	}
	if r.total-freed+size > r.max {
		return nil, false
	}
	for _, g := range victims {
		g.uncounted = true
		r.dropLocked(g)
	}
	r.total -= freed
	return victims, true
}

// make registers a region that was claimed fresh. It returns nil where that
// can't be done; the bytes go another way.
func (r *regions) make(c claim, w want) *region {
	g := c.region
	for _, victim := range c.victims {
		r.evicted.Add(1)
		r.end(victim)
	}
	_, err := r.pagemap()
	if err == nil {
		err = g.register(w)
	}
	if err == nil {
		close(g.ready)
		r.registered.Add(1)
		return g
	}
	r.mu.Lock()
	if !errors.Is(err, errHole) {
		r.failures.Add(1)
		g.file.refused[g.device] = true
	}
	r.dropLocked(g)
	r.mu.Unlock()
	close(g.ready)
	r.leave(g)
	return nil
}

// leave ends one use of a region.
func (r *regions) leave(g *region) {
	r.mu.Lock()
	g.users--
	last := g.users == 0
	if last && !g.dropped {
		g.idle = r.idle.PushBack(g)
	}
	last = last && g.dropped
	r.mu.Unlock()
	if last {
		r.end(g)
	}
}

// drop takes a region out of the table: nobody finds it any more, and it goes
// with its last user, of whom the caller is one.
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
	if pagemap, err := r.pagemap(); err == nil {
		return pagemap.Close()
	}
	return nil
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
	return RegisteredStats{
		Bytes: total, Hits: r.hits.Load(), Registered: r.registered.Load(), Failures: r.failures.Load(),
		Evicted: r.evicted.Load(), Stale: r.stale.Load(), DirectBytes: r.bytes.Load(),
	}
}
