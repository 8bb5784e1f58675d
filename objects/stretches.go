package objects

import "slices"

// maxStretches bounds the number of ranges recorded for one reader.
const maxStretches = 4096

// coverage records the ranges of a file that a reader has received, in order; ranges
// that touch are merged. The zero value is empty.
type coverage struct {
	parts []span
}

// span is the range of bytes [from, end).
type span struct{ from, end uint64 }

// completes reports whether one more range would complete the coverage of the bytes
// below size.
func (c *coverage) completes(s span, size uint64) bool {
	i, j := c.touching(s)
	if i < j {
		s = span{from: min(s.from, c.parts[i].from), end: max(s.end, c.parts[j-1].end)}
	}
	return s.from == 0 && s.end >= size
}

// add records a range. It does not if that would exceed maxStretches.
func (c *coverage) add(s span) {
	if s.from >= s.end {
		return
	}
	i, j := c.touching(s)
	if i == j && len(c.parts) == maxStretches {
		return
	}
	if i < j {
		s = span{from: min(s.from, c.parts[i].from), end: max(s.end, c.parts[j-1].end)}
	}
	c.parts = slices.Replace(c.parts, i, j, s)
}

// touching returns the indices [i, j) of the parts that a range overlaps or touches.
func (c *coverage) touching(s span) (i, j int) {
	i, _ = slices.BinarySearchFunc(c.parts, s.from, func(p span, from uint64) int {
		if p.end < from {
			return -1
		}
		return 1
	})
	j = i
	for j < len(c.parts) && c.parts[j].from <= s.end {
		j++
	}
	return i, j
}
