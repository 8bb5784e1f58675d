package fusion

import (
	"fmt"
	"math"
	"slices"
)

// DefaultPercent is the default split of a model in hcomm: a first bucket of 96.54 % of the
// bytes, and the rest.
const DefaultPercent = 96.54

// ByIndex checks and returns the given last tensors of the buckets.
//
// Errors: ErrArgument if they are not ascending, or there are none.
func ByIndex(ends []int) ([]int, error) {
	if len(ends) == 0 {
		return nil, fmt.Errorf("split by indexes: none given: %w", ErrArgument)
	}
	for i, end := range ends {
		if end < 0 || i > 0 && end <= ends[i-1] {
			return nil, fmt.Errorf("split by indexes %v, which must be ascending: %w", ends, ErrArgument)
		}
	}
	return slices.Clone(ends), nil
}

// ByPercent splits tensors of the given sizes into buckets with these shares of all bytes,
// as closely as the tensors allow; deviations of one bucket are made up for by the next. It
// returns the last tensor of each bucket; there are fewer buckets than shares if the
// tensors run out.
//
// Errors: ErrArgument for shares that do not sum to 100, or if there are no tensors.
func ByPercent(sizes []uint64, percent []float64) ([]int, error) {
	total := 0.0
	for _, p := range percent {
		if p < 0 || math.IsNaN(p) {
			return nil, fmt.Errorf("split by percentages: %v %% is invalid: %w", p, ErrArgument)
		}
		total += p
	}
	if len(percent) == 0 || math.Abs(total-100) > 1e-6 {
		return nil, fmt.Errorf("split by percentages %v: the sum is %v %% instead of 100: %w", percent, total, ErrArgument)
	}
	return split(sizes, percent)
}

// ByDefault splits as hcomm does: see DefaultPercent. The second bucket is omitted if no
// tensor remains for it.
func ByDefault(sizes []uint64) ([]int, error) {
	ends, err := split(sizes, []float64{DefaultPercent})
	if err != nil {
		return nil, err
	}
	if last := len(sizes) - 1; ends[0] < last {
		ends = append(ends, last)
	}
	return ends, nil
}

// split cuts close to the points where the cumulative share of the bytes reaches the
// cumulative percentage.
func split(sizes []uint64, percent []float64) ([]int, error) {
	if len(sizes) == 0 {
		return nil, fmt.Errorf("split by percentages: no tensors: %w", ErrArgument)
	}
	upto := make([]float64, len(sizes))
	sum := 0.0
	for i, n := range sizes {
		sum += float64(n)
		upto[i] = sum
	}
	last := len(sizes) - 1
	var ends []int
	for i, want := 0, 0.0; i < len(percent); i++ {
		want += percent[i] / 100 * sum
		at := near(upto, want)
		if len(ends) > 0 {
			at = max(at, ends[len(ends)-1]+1)
		}
		if i == len(percent)-1 && len(percent) > 1 {
			at = last
		}
		ends = append(ends, min(at, last))
		if ends[len(ends)-1] == last {
			break
		}
	}
	return ends, nil
}

// near is hcomm's search for the last tensor of a bucket, reproduced step by step, since
// ranks that run hcomm must get the same result: of the two tensors around the wanted
// number of bytes the nearer one, except that it returns the lower one if the search stops
// below.
func near(upto []float64, want float64) int {
	low, mid, high := 0, 0, len(upto)-1
	for low <= high {
		mid = (low + high) / 2
		switch {
		case math.Abs(upto[mid]-want) < 1e-6:
			return mid
		case upto[mid] > want:
			high = mid - 1
		default:
			low = mid + 1
		}
	}
	if mid > 0 && want-upto[mid-1] <= upto[mid]-want {
		return mid - 1
	}
	return mid
}
