package plan

import (
	"fmt"
	"math/bits"
)

// value identifies the terms of an element.
type value struct {
	// terms has a bit for each rank that has contributed to the value.
	terms uint64
	// tree is a number that identifies the tree in which the terms were combined.
	tree int
	// fold reports that ranks 0, 1, … were combined in this order.
	fold bool
	// divided reports that the value was divided by the number of ranks.
	divided bool
}

// part is a range of elements with the same value. The first one comes from element from of
// the contributing sources.
type part struct {
	Range
	value
	from uint64
}

// lease returns the part from an offset on, at most n elements of it.
func (p part) lease(off, n uint64) part {
	p.from += off - p.Off
	p.Len = min(p.End()-off, n)
	p.Off = off
	return p
}

// store is the content of a buffer: parts in order, without gaps.
type store []part

// read returns the content of a range, as a store that begins at 0.
func (s store) read(r Range) store {
	var out store
	for _, p := range s {
		if !p.Overlaps(r) {
			continue
		}
		off := max(p.Off, r.Off)
		p = p.lease(off, r.End()-off)
		p.Off -= r.Off
		out = append(out, p)
	}
	return out
}

// write replaces a range by a store that begins at 0.
func (s store) write(r Range, in store) store {
	var out store
	for _, p := range s {
		if p.Off < r.Off {
			out = append(out, p.lease(p.Off, r.Off-p.Off))
		}
	}
	for _, p := range in {
		p.Off += r.Off
		out = append(out, p)
	}
	for _, p := range s {
		if p.End() > r.End() {
			out = append(out, p.lease(max(p.Off, r.End()), p.Len))
		}
	}
	return out
}

// both calls do for each stretch in which both of two stores, of the same length, hold one
// value.
func (s store) both(o store, do func(a, b part) error) error {
	i, j := 0, 0
	for i < len(s) && j < len(o) {
		off := max(s[i].Off, o[j].Off)
		n := min(s[i].End(), o[j].End()) - off
		if err := do(s[i].lease(off, n), o[j].lease(off, n)); err != nil {
			return err
		}
		if s[i].End() == off+n {
			i++
		}
		if o[j].End() == off+n {
			j++
		}
	}
	return nil
}

// trees assigns a number to each tree of combined terms. Numbers below MaxRanks are the
// ranks themselves.
type trees map[[2]int]int

func (t trees) join(a, b int) int {
	k := [2]int{min(a, b), max(a, b)}
	n, known := t[k]
	if !known {
		n = MaxRanks + len(t)
		t[k] = n
	}
	return n
}

// combine returns the combination of two values.
func (t trees) combine(a, b part) (part, error) {
	switch both := a.terms & b.terms; {
	case a.terms == 0 || b.terms == 0:
		return a, fmt.Errorf("element %d of the data was never written", a.Off)
	case both != 0:
		return a, fmt.Errorf("rank %d contributes twice", bits.TrailingZeros64(both))
	case a.divided || b.divided:
		return a, fmt.Errorf("element %d of the data has already been divided", a.Off)
	case a.from != b.from:
		return a, fmt.Errorf("combines different elements of the sources, %d and %d", a.from, b.from)
	}
	a.fold = follows(a.value, b.value) || follows(b.value, a.value)
	a.terms |= b.terms
	a.tree = t.join(a.tree, b.tree)
	return a, nil
}

// follows reports whether b is the rank after those of a, which are combined in order.
func follows(a, b value) bool {
	return a.fold && bits.OnesCount64(b.terms) == 1 && b.terms == a.terms+1
}
