package collective

import (
	"slices"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// staging reports which buffers are in memory that the host can't access, by plan.Buffer.
type staging [4]bool

// stagingOf returns which buffers of a task are staged.
func stagingOf(t *plan.Task, source, result bool) (st staging) {
	if t.InPlace {
		st[t.Place(0, plan.Block{Buffer: plan.Source}).Buffer] = source || result
		return st
	}
	st[plan.Source], st[plan.Result] = source, result
	return st
}

// paging describes how a program uses staged buffers. They are cut into areas such that
// each step uses whole areas, and areas into pages: a page belongs to one area, and all its
// bytes are used by the same steps, in ascending order.
type paging struct {
	staged staging
	// cuts are the ends and beginnings of areas, in ascending order; last is the last step
	// that writes the area after each cut, or -1.
	cuts [4][]uint64
	last [4][]int
	// heads is the number of pages that steps can use at once.
	heads int
}

// pageAt identifies a page by its first byte.
type pageAt struct {
	buffer plan.Buffer
	off    uint64
}

// newPaging determines how a program uses staged buffers; nil if none is staged.
func newPaging(steps []step, phases []phase, st staging) *paging {
	if st == (staging{}) {
		return nil
	}
	p := &paging{staged: st}
	for i := range steps {
		for _, x := range steps[i].spans() {
			if p.stages(x) {
				p.cuts[x.Buffer] = append(p.cuts[x.Buffer], x.Off, x.End())
			}
		}
	}
	for b := range p.cuts {
		slices.Sort(p.cuts[b])
		p.cuts[b] = slices.Compact(p.cuts[b])
		p.last[b] = slices.Repeat([]int{-1}, len(p.cuts[b]))
	}
	for i := range steps {
		w := steps[i].write
		if !p.stages(w) {
			continue
		}
		for a := p.area(w.Buffer, w.Off); p.cuts[w.Buffer][a] < w.End(); a++ {
			p.last[w.Buffer][a] = i
		}
	}
	for i := range phases {
		p.heads = max(p.heads, p.headsOf(steps, &phases[i]))
	}
	return p
}

// stages reports whether a span has staged bytes.
func (p *paging) stages(x span) bool { return x.Len > 0 && p.staged[x.Buffer] }

// area returns the number of the area that contains a byte.
func (p *paging) area(b plan.Buffer, off uint64) int {
	i, begins := slices.BinarySearch(p.cuts[b], off)
	if begins {
		return i
	}
	return i - 1
}

// pageOf returns the page of at most size bytes that contains a byte, and its length.
func (p *paging) pageOf(b plan.Buffer, off, size uint64) (at pageAt, n uint64) {
	cuts := p.cuts[b]
	i := p.area(b, off)
	begin := cuts[i] + (off-cuts[i])/size*size
	return pageAt{b, begin}, min(size, cuts[i+1]-begin)
}

// headsOf returns the number of pages that the steps of a phase can use at once: those of
// one send and one receive for each link, and of one local step.
func (p *paging) headsOf(all []step, f *phase) int {
	most := func(steps []int) (n int) {
		for _, i := range steps {
			n = max(n, p.spansOf(&all[i]))
		}
		return n
	}
	n := most(f.local)
	for i := range f.lanes {
		n += most(f.lanes[i].sends) + most(f.lanes[i].receive)
	}
	return n
}

// spansOf returns the number of staged spans that a step uses.
func (p *paging) spansOf(s *step) (n int) {
	seen := [3]span{}
	for _, x := range s.spans() {
		if p.stages(x) && !slices.Contains(seen[:n], x) {
			seen[n] = x
			n++
		}
	}
	return n
}
