package objects

import "slices"

// maxStretches bounds what is kept of one reader's reads.
const maxStretches = 4096

// coverage records what a reader was given of a file: stretches without touching
// ones, in order. The zero value is nothing.
type coverage struct {
	parts []span
}

// span is the bytes from from up to end.
type span struct{ from, end uint64 }

// completes says whether everything up to size is covered with one more
// stretch.
func (c *coverage) completes(s span, size uint64) bool {
	i, j := c.touching(s)
	if i < j {
		s = span{from: min(s.from, c.parts[i].from), end: max(s.end, c.parts[j-1].end)}
	}
	return s.from == 0 && s.end >= size
}

// add notes a stretch. One that would be more than maxStretches is forgotten.
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

// touching finds the parts that a stretch overlaps, or meets: those from i up
// to j.
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
