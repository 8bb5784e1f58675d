package arena

import "math/bits"

const (
	// leafPages is the number of pages that one leaf of the run tree summarizes.
	leafPages = 256
	leafWords = leafPages / wordBits
)

// runs summarizes the free pages of a section: how many are at its head, at its tail, and
// in its longest run.
type runs struct {
	head, best, tail uint32
}

// join combines the summaries of two adjacent sections of half pages each.
func join(l, r runs, half uint32) runs {
	j := runs{head: l.head, tail: r.tail, best: max(l.best, r.best, l.tail+r.head)}
	if l.head == half {
		j.head += r.head
	}
	if r.tail == half {
		j.tail += l.tail
	}
	return j
}

// pageMap records which pages of a slab are free. Finding, taking and freeing pages takes
// time logarithmic in the slab's pages, plus one word per 64 pages of the range itself. It
// is not safe for concurrent use.
type pageMap struct {
	pages uint32
	free  uint32
	// taken has one bit for each page, padded with set bits to whole leaves.
	taken bitmap
	// tree is a binary heap: tree[1] summarizes the whole slab, tree[leaves+i] the i-th
	// leaf. leaves is a power of two; missing leaves have no free page.
	tree   []runs
	leaves uint32
}

func newPageMap(pages uint32) *pageMap {
	present := (pages + leafPages - 1) / leafPages
	m := &pageMap{
		pages:  pages,
		free:   pages,
		taken:  make(bitmap, present*leafWords),
		leaves: 1 << bits.Len32(present-1),
	}
	m.tree = make([]runs, 2*m.leaves)
	if pad := present*leafPages - pages; pad > 0 {
		m.taken.set(pages, pad)
	}
	m.update(0, pages)
	return m
}

// longest returns the length of the longest free run.
func (m *pageMap) longest() uint32 { return m.tree[1].best }

// find returns the first position with n free pages in a row.
func (m *pageMap) find(n uint32) (page uint32, ok bool) {
	if m.tree[1].best < n {
		return 0, false
	}
	node, base, half := uint32(1), uint32(0), m.leaves*leafPages/2
	for ; node < m.leaves; half /= 2 {
		l, r := m.tree[2*node], m.tree[2*node+1]
		switch {
		case l.best >= n:
			node = 2 * node
		case l.tail+r.head >= n:
			return base + half - l.tail, true
		default:
			node = 2*node + 1
			base += half
		}
	}
	return m.findInLeaf(base, n), true
}

// findInLeaf finds n free pages in the leaf that begins at base, which must have them.
func (m *pageMap) findInLeaf(base, n uint32) uint32 {
	end := base + leafPages
	for page := base; page < end; {
		page = m.taken.nextClear(page, end)
		stop := m.taken.nextSet(page, end)
		if stop-page >= n {
			return page
		}
		page = stop
	}
	return base
}

// freeAfter returns the number of free pages from page on, up to most.
func (m *pageMap) freeAfter(page, most uint32) uint32 {
	end := page + min(most, m.pages-page)
	return m.taken.nextSet(page, end) - page
}

// isTaken reports whether every page of the range is taken.
func (m *pageMap) isTaken(page, n uint32) bool {
	return page < m.pages && n <= m.pages-page && m.taken.allSet(page, n)
}

func (m *pageMap) take(page, n uint32) {
	m.taken.set(page, n)
	m.free -= n
	m.update(page, n)
}

func (m *pageMap) give(page, n uint32) {
	m.taken.clear(page, n)
	m.free += n
	m.update(page, n)
}

// update recomputes the summaries above the pages of the range.
func (m *pageMap) update(page, n uint32) {
	first, last := m.leaves+page/leafPages, m.leaves+(page+n-1)/leafPages
	for node := first; node <= last; node++ {
		m.tree[node] = m.sumLeaf(node - m.leaves)
	}
	for half := uint32(leafPages); first > 1; half *= 2 {
		first, last = first/2, last/2
		for node := first; node <= last; node++ {
			m.tree[node] = join(m.tree[2*node], m.tree[2*node+1], half)
		}
	}
}

func (m *pageMap) sumLeaf(leaf uint32) runs {
	words := m.taken[leaf*leafWords : (leaf+1)*leafWords]
	switch {
	case words[0]&words[1]&words[2]&words[3] == ^uint64(0):
		return runs{}
	case words[0]|words[1]|words[2]|words[3] == 0:
		return runs{head: leafPages, best: leafPages, tail: leafPages}
	}
	var sum runs
	for page := uint32(0); page < leafPages; {
		page = words.nextClear(page, leafPages)
		stop := words.nextSet(page, leafPages)
		run := stop - page
		sum.best = max(sum.best, run)
		if page == 0 {
			sum.head = run
		}
		if stop == leafPages {
			sum.tail = run
		}
		page = stop
	}
	return sum
}
