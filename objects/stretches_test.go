package objects

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestCoverage compares coverage with a flag for each byte.
func TestCoverage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		size := rng.Uint64N(64)
		var c coverage
		have := make([]bool, size)
		for range 40 {
			from := rng.Uint64N(size + 4)
			s := span{from: from, end: from + rng.Uint64N(12)}
			with := slices.Clone(have)
			for i := s.from; i < min(s.end, size); i++ {
				with[i] = true
			}
			if got, want := c.completes(s, size), !slices.Contains(with, false); got != want && slices.Contains(have, false) && s.from < s.end {
				t.Fatalf("%+v of %d bytes beside %+v completes: %v", s, size, c.parts, got)
			}
			c.add(s)
			have = with
			for i, p := range c.parts {
				if p.from >= p.end || i > 0 && c.parts[i-1].end >= p.from {
					t.Fatalf("stretches %+v", c.parts)
				}
			}
		}
	}
}

// TestCoverageBound: a range beyond the limit is not recorded, unless it touches
// others.
func TestCoverageBound(t *testing.T) {
	t.Parallel()
	var c coverage
	const size = 4 * maxStretches
	for i := range uint64(maxStretches) {
		c.add(span{from: 4 * i, end: 4*i + 1})
	}
	c.add(span{from: size + 8, end: size + 9})
	c.add(span{from: 2, end: 3})
	if len(c.parts) != maxStretches {
		t.Fatalf("%d stretches are kept, at most %d can be", len(c.parts), maxStretches)
	}
	c.add(span{from: 1, end: 4})
	if len(c.parts) != maxStretches-1 || c.parts[0] != (span{from: 0, end: 5}) {
		t.Fatalf("%d stretches, the first %+v", len(c.parts), c.parts[0])
	}
	c.add(span{from: 2 * size, end: 2*size + 1}) // one more has room again
	if len(c.parts) != maxStretches {
		t.Fatalf("%d stretches", len(c.parts))
	}
	if c.completes(span{from: 5, end: size - 4}, size) {
		t.Fatal("complete without the last bytes")
	}
	if !c.completes(span{from: 5, end: size}, size) {
		t.Fatal("not complete with all bytes")
	}
}
