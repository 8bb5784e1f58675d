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
			s := Stretch{From: from, End: from + rng.Uint64N(12)}
			with := slices.Clone(have)
			for i := s.From; i < min(s.End, size); i++ {
				with[i] = true
			}
			if got, want := c.completes(s, size), !slices.Contains(with, false); got != want && slices.Contains(have, false) && s.From < s.End {
				t.Fatalf("%+v of %d bytes beside %+v completes: %v", s, size, c.parts, got)
			}
			c.add(s)
			have = with
			for i, p := range c.parts {
				if p.From >= p.End || i > 0 && c.parts[i-1].End >= p.From {
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
		c.add(Stretch{From: 4 * i, End: 4*i + 1})
	}
	c.add(Stretch{From: size + 8, End: size + 9})
	c.add(Stretch{From: 2, End: 3})
	if len(c.parts) != maxStretches {
		t.Fatalf("%d stretches are kept, at most %d can be", len(c.parts), maxStretches)
	}
	c.add(Stretch{From: 1, End: 4})
	if len(c.parts) != maxStretches-1 || c.parts[0] != (Stretch{From: 0, End: 5}) {
		t.Fatalf("%d stretches, the first %+v", len(c.parts), c.parts[0])
	}
	c.add(Stretch{From: 2 * size, End: 2*size + 1}) // one more has room again
	if len(c.parts) != maxStretches {
		t.Fatalf("%d stretches", len(c.parts))
	}
	if c.completes(Stretch{From: 5, End: size - 4}, size) {
		t.Fatal("complete without the last bytes")
	}
	if !c.completes(Stretch{From: 5, End: size}, size) {
		t.Fatal("not complete with all bytes")
	}
}
