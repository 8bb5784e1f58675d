package objects

import "slices"

// maxStretches bounds the number of ranges recorded for one reader.
const maxStretches = 4096

// coverage records the ranges of a file that a reader has received, in order; ranges
// that touch are merged. The zero value is empty.
type coverage struct {
	parts []Stretch
}

// completes reports whether one more range would complete the coverage of the bytes
// below size.
func (c *coverage) completes(s Stretch, size uint64) bool {
	i, j := c.touching(s)
	if i < j {
		s = Stretch{From: min(s.From, c.parts[i].From), End: max(s.End, c.parts[j-1].End)}
	}
	return s.From == 0 && s.End >= size
}

// add records a range. It does not if that would exceed maxStretches.
func (c *coverage) add(s Stretch) {
	if s.From >= s.End {
		return
	}
	i, j := c.touching(s)
	if i == j && len(c.parts) == maxStretches {
		return
	}
	if i < j {
		s = Stretch{From: min(s.From, c.parts[i].From), End: max(s.End, c.parts[j-1].End)}
	}
	c.parts = slices.Replace(c.parts, i, j, s)
}

// touching returns the indices [i, j) of the parts that a range overlaps or touches.
func (c *coverage) touching(s Stretch) (i, j int) {
	i, _ = slices.BinarySearchFunc(c.parts, s.From, func(p Stretch, from uint64) int {
		if p.End < from {
			return -1
		}
		return 1
	})
	j = i
	for j < len(c.parts) && c.parts[j].From <= s.End {
		j++
	}
	return i, j
}
