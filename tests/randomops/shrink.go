package randomops

import (
	"slices"
	"strconv"
	"strings"
)

// Shrink returns a smaller program, derived from p, that still fails. It first removes as
// many operations as possible, in large pieces before small ones, and then makes numbers
// smaller and rounder. It calls fails at most limit times.
//
// Preconditions: fails(p).
func Shrink(p Program, limit int, fails func(Program) bool) Program {
	s := &shrinker{left: limit, fails: fails}
	p = s.operations(p.clone())
	p = s.numbers(p)
	return s.operations(p)
}

type shrinker struct {
	left  int
	fails func(Program) bool
}

// try reports whether a candidate fails too; false once the tries are used up.
func (s *shrinker) try(p Program) bool {
	if s.left <= 0 {
		return false
	}
	s.left--
	return s.fails(p)
}

// operations removes pieces, and halves their length when none can be removed.
func (s *shrinker) operations(p Program) Program {
	for piece := max(len(p)/2, 1); ; {
		gone := false
		// From the end: operations after the failure are removed first.
		for end := len(p); end > 0; end -= piece {
			end = min(end, len(p))
			less := slices.Delete(slices.Clone(p), max(end-piece, 0), end)
			if s.try(less) {
				p, gone = less, true
			}
		}
		switch {
		case gone && piece > 1 || !gone && piece > 1:
			piece = max(piece/2, 1)
		case !gone:
			return p
		}
	}
}

// numbers makes offsets and lengths smaller.
func (s *shrinker) numbers(p Program) Program {
	verbs := Verbs()
	for i := range p {
		for a, kind := range strings.Fields(verbs[p[i].Verb].Args) {
			if kind != argOff && kind != argLen {
				continue
			}
			for _, smaller := range simpler(p[i].number(a)) {
				less := p.clone()
				less[i].Args[a] = strconv.FormatInt(smaller, 10)
				if s.try(less) {
					p = less
					break
				}
			}
		}
	}
	return p
}

// simpler returns numbers to try in place of n, the simplest first.
func simpler(n int64) []int64 {
	var out []int64
	for _, c := range []int64{0, 1, 4096, n / 2, n / (1 << 20) * (1 << 20), n / 4096 * 4096} {
		if c < n && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}
