package fs

import "math/bits"

const (
	// page is the unit, in bytes, in which the kernel's pages are counted; a machine with
	// larger pages has several of these in each.
	page = 4096
	// chunkPages is the number of pages that one entry of a pageSet covers.
	chunkPages = 4096
)

// pageSet is a set of pages of a file, which may be sparse.
type pageSet map[uint64]*[chunkPages / 64]uint64

// pagesOf returns the first page of n bytes at off, n > 0, and the last.
func pagesOf(off, n uint64) (first, last uint64) { return off / page, (off + n - 1) / page }

func (s pageSet) add(first, last uint64) {
	for p := first; p <= last; p++ {
		c := s[p/chunkPages]
		if c == nil {
			c = new([chunkPages / 64]uint64)
			s[p/chunkPages] = c
		}
		c[p%chunkPages/64] |= 1 << (p % 64)
	}
}

// within returns the pages of the set from first to last. The order of its chunks is
// arbitrary.
func (s pageSet) within(first, last uint64) []uint64 {
	var found []uint64
	look := func(chunk uint64) {
		for i, word := range s[chunk] {
			for ; word != 0; word &= word - 1 {
				p := chunk*chunkPages + uint64(i)*64 + uint64(bits.TrailingZeros64(word))
				if first <= p && p <= last {
					found = append(found, p)
				}
			}
		}
	}
	from, to := first/chunkPages, last/chunkPages
	if to-from >= uint64(len(s)) {
		for chunk := range s {
			look(chunk)
		}
		return found
	}
	for chunk := from; chunk <= to; chunk++ {
		if s[chunk] != nil {
			look(chunk)
		}
	}
	return found
}

// remove removes pages, all of which must be in the set.
func (s pageSet) remove(pages []uint64) {
	for _, p := range pages {
		c := s[p/chunkPages]
		if c[p%chunkPages/64] &^= 1 << (p % 64); *c == [chunkPages / 64]uint64{} {
			delete(s, p/chunkPages)
		}
	}
}
