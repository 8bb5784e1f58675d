package fusion_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/transport/collective/fusion"
)

// TestByPercent checks the figures of hcomm's own test: case 20.
func TestByPercent(t *testing.T) {
	for _, c := range []struct {
		percent []float64
		want    []int
	}{
		{[]float64{20, 40, 40}, []int{6, 18, 29}},
		{[]float64{96, 2, 2}, []int{25, 28, 29}},
		{[]float64{100}, []int{29}},
		{[]float64{0, 100}, []int{0, 29}},
		{[]float64{96.54, 3.46}, []int{25, 29}},
	} {
		got, err := fusion.ByPercent(resnet(), c.percent)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, not %v", c.percent, got, err, c.want)
		}
	}
	for _, bad := range [][]float64{nil, {20, 20, 20}, {120, -20}, {math.NaN()}, {99.9}} {
		if got, err := fusion.ByPercent(resnet(), bad); !errors.Is(err, fusion.ErrArgument) {
			t.Errorf("%v: %v, %v", bad, got, err)
		}
	}
	if _, err := fusion.ByPercent(nil, []float64{100}); !errors.Is(err, fusion.ErrArgument) {
		t.Errorf("no tensors: %v", err)
	}
}

// TestByDefault checks hcomm's default split.
func TestByDefault(t *testing.T) {
	for _, c := range []struct {
		sizes []uint64
		want  []int
	}{
		{resnet(), []int{25, 29}},
		{[]uint64{4096}, []int{0}},
		{[]uint64{0, 0, 0}, []int{1, 2}},
		// The exact share, to the last digit.
		{slices.Repeat([]uint64{7}, 10_000), []int{9653, 9999}},
	} {
		got, err := fusion.ByDefault(c.sizes)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d tensors: %v, %v, not %v", len(c.sizes), got, err, c.want)
		}
	}
}

// TestByIndex checks that lists are rejected that hcomm rejects.
func TestByIndex(t *testing.T) {
	if got, err := fusion.ByIndex([]int{1, 4}); err != nil || !slices.Equal(got, []int{1, 4}) {
		t.Errorf("1, 4: %v, %v", got, err)
	}
	for _, bad := range [][]int{nil, {1, 4, 3}, {1, 1}, {-1, 2}} {
		if _, err := fusion.ByIndex(bad); !errors.Is(err, fusion.ErrArgument) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
