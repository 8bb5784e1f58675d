package transport

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
)

// lease returns a region that holds the beginning of a stretch, and the number of
// bytes of the stretch in it. The region is held until leave. If it is nil, those
// bytes must go through slots.
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
			r.counts.hits.Add(1)
			return c.region, c.n
		}
		r.mu.Lock()
		r.dropLocked(c.region)
		r.mu.Unlock()
		r.leave(c.region)
	}
}

// usable reports whether an existing region can be used for a stretch.
func (r *regions) usable(g *region, w want) bool {
	if g.mem == nil {
		return false
	}
	if now := g.device.Epoch(); now != g.epoch {
		r.counts.stale.Add(1)
		r.forget(func(other *region) bool { return other.device == g.device && other.epoch != now })
		return false
	}
	if pages, err := r.pagemap(); err != nil || !g.holds(pages, w.off, w.n) {
		r.counts.stale.Add(1)
		return false
	}
	return true
}

// claim is a result of lease: a region, or nil, for the first n bytes.
type claim struct {
	region *region
	n      devices.Size
	// fresh means that the caller must register the region, after it has ended
	// the victims, which make room for it.
	fresh   bool
	victims []*region
}

// claim finds the region that holds the beginning of a stretch, or makes room for
// a new one in the gap.
func (r *regions) claim(w want) claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.fileLocked(w.id)
	defer r.sweepLocked(f)
	if r.closed || f.held > 0 || f.shared {
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

// roomLocked drops idle regions, least recently used first, until there is room
// for size bytes. Regions of the same file stay: otherwise a file longer than the
// limit that is read repeatedly from end to end would never find a page
// registered.
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

// make registers a region that was claimed fresh. It returns nil if that fails;
// the bytes then go through slots.
func (r *regions) make(c claim, w want) *region {
	g := c.region
	r.counts.evicted.Add(uint64(len(c.victims)))
	r.end(c.victims...)
	_, err := r.pagemap()
	if err == nil {
		err = g.register(w)
	}
	if err == nil {
		close(g.ready)
		r.counts.registered.Add(1)
		return g
	}
	r.mu.Lock()
	if !errors.Is(err, errHole) {
		r.counts.failures.Add(1)
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
