package badgerkv

import (
	"math/rand/v2"
	"testing"
)

// TestHashes compares a map of hashes with one of Go's, for hashes of which many share slots and tags.
func TestHashes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h, model := newHashes[int](3), map[uint64]int{}
	for round := range 20 {
		for range 1 + random.IntN(2000) {
			hash := random.Uint64N(1<<10) | random.Uint64N(3)<<57
			if got := h.get(hash); got != model[hash] {
				t.Fatalf("hash %#x has %d, want %d", hash, got, model[hash])
			}
			if random.IntN(3) > 0 {
				v := 1 + random.IntN(1000)
				place := h.at(hash)
				if *place != model[hash] {
					t.Fatalf("the place of hash %#x has %d, want %d", hash, *place, model[hash])
				}
				*place, model[hash] = v, v
			}
		}
		if h.used != len(model) {
			t.Fatalf("%d values, want %d", h.used, len(model))
		}
		for hash, v := range model {
			if got := h.get(hash); got != v {
				t.Fatalf("hash %#x has %d, want %d", hash, got, v)
			}
		}
		if round%7 == 6 {
			h.clear()
			clear(model)
		}
	}
}
