package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Probe is one measurement.
type Probe struct {
	// Name names the measurement, for errors.
	Name string
	// Prepare prepares a measurement, and is not timed; it may be nil.
	Prepare func(ctx context.Context) error
	// Run returns the measured value, for example in bytes per second.
	Run func(ctx context.Context) (float64, error)
}

// Timed makes a Run from a function that returns the amount of work it did.
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

// Series holds the values of one probe, by round.
type Series []float64

// Interleave runs every probe once per round, each round starting with another probe, and
// returns the series in the order of the probes.
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

// Median returns the median; for an even number of values, the mean of the middle two; for
// none, 0.
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

// Over returns the ratios of the rounds. Rounds without a counterpart, or whose counterpart
// is 0, are omitted.
func (s Series) Over(base Series) Series {
	var out Series
	for i := range min(len(s), len(base)) {
		if base[i] != 0 {
			out = append(out, s[i]/base[i])
		}
	}
	return out
}
