package arena

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// model replays a byte script against an arena and a plain map of the leased pages.
type model struct {
	t      *testing.T
	dev    *fakeDevice
	arena  *Arena
	owner  map[SlabID]map[devices.Offset]bool
	leases []Lease
	leased devices.Size
	script []byte
}

func (m *model) next() int {
	if len(m.script) == 0 {
		return 0
	}
	b := m.script[0]
	m.script = m.script[1:]
	return int(b)
}

func replay(t *testing.T, script []byte) {
	m := &model{t: t, dev: newFake(3*devices.MiB+9000, 2*devices.MiB), script: script}
	m.owner = map[SlabID]map[devices.Offset]bool{}
	m.arena = newArena(t, m.dev, Options{SlabSize: 300 * devices.KiB, Retain: 600 * devices.KiB})
	for len(m.script) > 0 {
		switch op := m.next(); op % 16 {
		case 0, 1, 2, 3:
			m.alloc(m.size())
		case 4, 5, 6:
			m.allocSome()
		case 7, 8:
			m.extend()
		case 9, 10, 11, 12:
			m.freeAll()
		case 13, 14:
			m.freePart()
		case 15:
			if op == 255 {
				m.crash()
			} else {
				m.badFree()
			}
		}
		m.check()
	}
}

// size returns a size that is often small, sometimes near a slab, rarely near the device.
func (m *model) size() devices.Size {
	n := devices.Size(m.next())
	switch m.next() % 8 {
	case 0:
		return n*10000 + 1
	case 1:
		return n*1000 + 1
	}
	return n%20*4096 + 1
}

func (m *model) alloc(n devices.Size) {
	l, err := m.arena.Alloc(context.Background(), n)
	m.got(l, err, n, n)
}

func (m *model) allocSome() {
	n := m.size()
	least := 1 + n/devices.Size(1+m.next())
	least = min(least, n)
	l, err := m.arena.AllocSome(context.Background(), n, least)
	m.got(l, err, n, least)
}

func (m *model) got(l Lease, err error, n, least devices.Size) {
	if errors.Is(err, devices.ErrOutOfMemory) {
		m.mustBeFull(roundUp(least, 4096))
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	if l.Span.Len > roundUp(n, 4096) || l.Span.Len < roundUp(least, 4096) {
		m.t.Fatalf("asked for %d to %d, got %v", least, n, l.Span.Range)
	}
	m.own(l.Slab, l.Span.Range)
	m.leases = append(m.leases, l)
}

// mustBeFull checks that a refusal was correct: there is no free run, and no room for a
// slab even after free slabs are returned.
func (m *model) mustBeFull(n devices.Size) {
	if n > m.arena.largest {
		return
	}
	u := m.arena.Usage()
	if u.LargestFree >= n || u.Retained > 0 || m.arena.total-u.Held >= n {
		m.t.Fatalf("%d bytes refused with %+v", n, u)
	}
}

func (m *model) own(id SlabID, r devices.Range) {
	if m.owner[id] == nil {
		m.owner[id] = map[devices.Offset]bool{}
	}
	for off := r.Off; off < r.End(); off += 4096 {
		if m.owner[id][off] {
			m.t.Fatalf("page %d of slab %d leased twice", off, id)
		}
		m.owner[id][off] = true
	}
	m.leased += r.Len
}

func (m *model) disown(id SlabID, r devices.Range) {
	for off := r.Off; off < r.End(); off += 4096 {
		delete(m.owner[id], off)
	}
	m.leased -= r.Len
}

// pick removes a lease from the list and returns it; false if there is none.
func (m *model) pick() (Lease, bool) {
	if len(m.leases) == 0 {
		return Lease{}, false
	}
	i := m.next() * 7 % len(m.leases)
	l := m.leases[i]
	last := len(m.leases) - 1
	m.leases[i] = m.leases[last]
	m.leases = m.leases[:last]
	return l, true
}

func (m *model) extend() {
	l, ok := m.pick()
	if !ok {
		return
	}
	by := m.size()
	more := m.arena.Extend(l, by)
	if more > roundUp(by, 4096) {
		m.t.Fatalf("extended by %d instead of %d", more, by)
	}
	m.own(l.Slab, devices.Range{Off: l.Span.End(), Len: more})
	l.Span.Len += more
	m.leases = append(m.leases, l)
}

func (m *model) freeAll() {
	if l, ok := m.pick(); ok {
		m.free(l)
	}
}

func (m *model) free(l Lease) {
	mustFree(m.t, m.arena, l)
	m.disown(l.Slab, l.Span.Range)
}

func (m *model) freePart() {
	l, ok := m.pick()
	if !ok {
		return
	}
	pages := int(l.Span.Len / 4096)
	from := m.next() % pages
	to := from + 1 + m.next()%(pages-from)
	m.free(part(m.t, l, from, to))
	if from > 0 {
		m.leases = append(m.leases, part(m.t, l, 0, from))
	}
	if to < pages {
		m.leases = append(m.leases, part(m.t, l, to, pages))
	}
}

func (m *model) badFree() {
	l, ok := m.pick()
	if !ok {
		return
	}
	m.free(l)
	if err := m.arena.Free(l); !errors.Is(err, ErrNotLeased) {
		m.t.Fatalf("freed twice: %v", err)
	}
}

func (m *model) crash() {
	m.dev.crash()
	for _, l := range m.leases {
		if err := m.arena.Free(l); !errors.Is(err, devices.ErrLost) {
			m.t.Fatalf("free after a crash: %v", err)
		}
	}
	m.leases, m.leased = nil, 0
	clear(m.owner)
}

func (m *model) check() {
	u := m.arena.Usage()
	if u.Leased != m.leased || u.Held > m.dev.info.Total || u.Leased > u.Held || u.Retained > u.Held {
		m.t.Fatalf("usage %+v, model has %d leased", u, m.leased)
	}
	if used := m.dev.inUse(); used != u.Held {
		m.t.Fatalf("held %d, the device has %d in use", u.Held, used)
	}
	m.arena.mu.Lock()
	defer m.arena.mu.Unlock()
	var longest uint32
	for id, s := range m.arena.slabs {
		m.checkSlab(id, s)
		longest = max(longest, s.pages.longest())
	}
	if m.arena.longest() != longest {
		m.t.Fatalf("slot tree and spares say %d, slabs %d", m.arena.longest(), longest)
	}
}

// checkSlab compares the bits with the model, and the run tree with a plain scan.
//
// +checklocks:m.arena.mu
func (m *model) checkSlab(id SlabID, s *slab) {
	var run, best, free uint32
	for page := range s.pages.pages {
		taken := s.pages.isTaken(page, 1)
		if taken != m.owner[id][devices.Offset(page)*4096] {
			m.t.Fatalf("page %d of slab %d: taken is %v", page, id, taken)
		}
		if taken {
			run = 0
			continue
		}
		run++
		free++
		best = max(best, run)
	}
	if spare := best == s.pages.pages && s.size > m.arena.opts.SlabSize; spare != s.spare || spare != slices.Contains(m.arena.spares, s) {
		m.t.Fatalf("slab %d of %d bytes, %d pages free: spare is %v", id, s.size, free, s.spare)
	}
	if best != s.pages.longest() || free != s.pages.free {
		m.t.Fatalf("slab %d: longest %d, free %d; scan says %d, %d", id, s.pages.longest(), s.pages.free, best, free)
	}
}

func TestModel(t *testing.T) {
	scripts := 60
	if testing.Short() {
		scripts = 5
	}
	for seed := range uint64(scripts) {
		script := make([]byte, 2000)
		src := rand.New(rand.NewPCG(seed, 1))
		for i := range script {
			script[i] = byte(src.Uint32())
		}
		t.Logf("seed %d", seed)
		replay(t, script)
	}
}

func FuzzArena(f *testing.F) {
	f.Add([]byte{0, 5, 2, 4, 255, 0, 3, 9, 0, 13, 0, 1, 1, 255, 0, 9, 9})
	f.Add([]byte{0, 250, 0, 0, 250, 0, 0, 250, 0, 9, 0, 9, 0, 0, 255, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		replay(t, script[:min(len(script), 1000)])
	})
}

func TestFindIsFirstFit(t *testing.T) {
	m := newPageMap(3000)
	src := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		if page, n := src.Uint32N(2990), 1+src.Uint32N(10); m.freeAfter(page, n) == n {
			m.take(page, n)
		} else if m.isTaken(page, n) {
			m.give(page, n)
		}
		want := 1 + src.Uint32N(600)
		got, ok := m.find(want)
		if first := firstFit(m, want); ok != (first >= 0) || (ok && int64(got) != first) {
			t.Fatalf("find(%d) = %d, %v; want %d", want, got, ok, first)
		}
	}
}

func firstFit(m *pageMap, n uint32) int64 {
	for page := range m.pages {
		if m.freeAfter(page, n) == n {
			return int64(page)
		}
	}
	return -1
}
