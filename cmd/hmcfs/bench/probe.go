package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Probe measures one thing once.
type Probe struct {
	// Name names the measurement, for errors.
	Name string
	// Prepare makes ready, and is not timed; nil is nothing.
	Prepare func(ctx context.Context) error
	// Run returns what was measured, for example bytes a second.
	Run func(ctx context.Context) (float64, error)
}

// Timed makes a Run of a function that returns how much it did.
func Timed(fn func(ctx context.Context) (int64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		begin := time.Now()
		n, err := fn(ctx)
		if err != nil {
			return 0, err
		}
		return float64(n) / time.Since(begin).Seconds(), nil
	}
}

// Series are the values of one probe, by round.
type Series []float64

// Interleave runs every probe once a round, each round beginning with
// another one, and returns the series in the order of the probes.
func Interleave(ctx context.Context, rounds int, probes []Probe) ([]Series, error) {
	out := make([]Series, len(probes))
	for round := range rounds {
		for turn := range probes {
			i := (round + turn) % len(probes)
			v, err := probes[i].once(ctx)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", probes[i].Name, err)
			}
			out[i] = append(out[i], v)
		}
	}
	return out, nil
}

func (p Probe) once(ctx context.Context) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if p.Prepare != nil {
		if err := p.Prepare(ctx); err != nil {
			return 0, err
		}
	}
	return p.Run(ctx)
}

// Median is the value in the middle; of an even number, the mean of the two.
// Of none it is 0.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Over divides round by round. Rounds that lack a partner, or whose partner
// is 0, are left out.
func (s Series) Over(base Series) Series {
	var out Series
	for i := range min(len(s), len(base)) {
		if base[i] != 0 {
			out = append(out, s[i]/base[i])
		}
	}
	return out
}
