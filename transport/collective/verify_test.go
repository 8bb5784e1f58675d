package collective

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// TestVerifyOfMany finds the different blocks of memory with more blocks than are compared
// at once, using their checksums alone: the memory itself would be 8 GiB.
func TestVerifyOfMany(t *testing.T) {
	kit.Check(t)
	const n, blocks = 3, 2*roundSums + 5
	w, _ := newFaulty(t, n, Options{})
	v := w.floats(0, 1)
	out := make([]*Difference, n)
	err := together(n, func(r int) (err error) {
		sums := make([]byte, blocks*sumSize)
		if r == 1 {
			for _, block := range []int{0, roundSums - 1, roundSums, 2*roundSums + 4} {
				sums[block*sumSize] = 1
			}
		}
		g := w.groups[r]
		g.mu.Lock()
		defer g.mu.Unlock()
		out[r], err = g.verifyBlocks(t.Context(), v, sums)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, d := range out {
		var found []uint64
		for _, b := range d.Blocks {
			found = append(found, b.Block)
			if !slices.Equal(b.Ranks, []plan.Rank{1}) || b.Range.Off != devices.Offset(b.Block)*devices.Offset(VerifyBlock) {
				t.Errorf("rank %d: %+v", r, b)
			}
		}
		if want := []uint64{0, roundSums - 1, roundSums, 2*roundSums + 4}; !slices.Equal(found, want) {
			t.Errorf("rank %d: blocks %v, not %v", r, found, want)
		}
	}
}
