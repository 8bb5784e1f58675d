package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"gonum.org/v1/plot/plotter"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
)

// rows lists the rows of the table in order.
func (c *collectives) rows() []row {
	var rows []row
	for _, n := range largeSizes() {
		rows = append(rows, c.bandwidth(n, 2,
			want{of: hmcfsShared, against: mpiShared, bound: 1.3},
			want{of: hmcfsTCP, against: glooTCP, bound: 1},
			want{of: hmcfsTCP, against: mpiTCP, bound: 1.2}))
	}
	for _, n := range smallSizes() {
		rows = append(rows, c.latency("all-reduce of "+short(n), point{2, n},
			want{of: hmcfsTCP, against: mpiTCP, bound: 2, atMost: true}))
	}
	rows = append(rows, c.latency("barrier", point{2, 0},
		want{of: hmcfsShared, against: mpiShared, bound: 3, atMost: true},
		want{of: hmcfsTCP, against: mpiTCP, bound: 1.5, atMost: true}))
	rows = append(rows, c.ringRows()...)
	rows = append(rows, c.choiceRows()...)
	rows = append(rows, c.pairRow(), c.fusionRow(), c.allocationRow())
	for _, n := range []devices.Size{devices.MiB, 64 * devices.MiB} {
		rows = append(rows, c.bandwidth(n, 4))
	}
	return append(rows, c.latency("barrier of 4 ranks, more than processors", point{4, 0}))
}

// bandwidth returns a row of bus bandwidths.
func (c *collectives) bandwidth(n devices.Size, ranks int, wants ...want) row {
	name := fmt.Sprintf("all-reduce of %s, bus bandwidth", short(n))
	if ranks > 2 {
		name = fmt.Sprintf("all-reduce of %s, bus bandwidth, %d ranks, more than processors", short(n), ranks)
	}
	bus := 2 * float64(ranks-1) / float64(ranks) * float64(n)
	return row{name: name, unit: gigabytes, wants: wants, custom: func(ctx context.Context, rounds int) (result, error) {
		return c.result(ctx, rounds, point{ranks, n}, func(s float64) float64 { return bus / s })
	}}
}

// latency returns a row of times.
func (c *collectives) latency(name string, at point, wants ...want) row {
	return row{name: name, unit: micros, wants: wants, custom: func(ctx context.Context, rounds int) (result, error) {
		return c.result(ctx, rounds, at, func(s float64) float64 { return s })
	}}
}

// result returns the results of all groups at one point.
func (c *collectives) result(ctx context.Context, rounds int, at point, value func(s float64) float64) (result, error) {
	if err := c.measure(ctx, rounds); err != nil {
		return result{}, err
	}
	var r result
	for _, g := range c.groups {
		series := make(bench.Series, len(g.took[at]))
		for i, s := range g.took[at] {
			series[i] = value(s)
		}
		if len(series) > 0 {
			r.figures = append(r.figures, figure{g.name, series})
		}
	}
	return r, nil
}

// ringRows compares the ring's time with the time that its links need.
func (c *collectives) ringRows() []row {
	var rows []row
	for _, way := range []string{"shm", "tcp"} {
		for _, n := range []devices.Size{devices.MiB, 64 * devices.MiB} {
			rows = append(rows, row{
				name: fmt.Sprintf("ring, all-reduce of %s by %s, against its bound", short(n), way), unit: micros,
				wants: []want{{of: "measured", against: "bound", bound: 1.3, atMost: true}},
				notes: []string{"The bound is 2(N−1)α + 2(N−1)/N·S·β + (N−1)/N·S·γ, with α, β and γ as the group measures them when it is made."},
				custom: func(ctx context.Context, rounds int) (result, error) {
					return together(ctx, rounds, "measured", "bound", func(ctx context.Context) (float64, float64, error) {
						r, err := c.one(ctx, way, "--algorithm", "ring", "--operation", "allreduce", "--private", "--sizes", strconv.FormatUint(uint64(n), 10))
						return r.Seconds, r.Predicted, err
					})
				},
			})
		}
	}
	return rows
}

// choiceRows compares the algorithm that the cost model chooses with the fastest of all
// suitable ones.
func (c *collectives) choiceRows() []row {
	var rows []row
	for _, n := range []devices.Size{devices.KiB, 256 * devices.KiB, 16 * devices.MiB} {
		rows = append(rows, row{
			name: fmt.Sprintf("all-reduce of %s by tcp, 4 ranks: the model's choice", short(n)), unit: micros,
			wants: []want{{of: "chosen", against: "fastest", bound: 1.2, atMost: true}},
			notes: []string{"More ranks than processors. `hmcfs perf collective --compare`: every algorithm that can do it, in turns."},
			custom: func(ctx context.Context, rounds int) (result, error) {
				return together(ctx, rounds, "chosen", "fastest", func(ctx context.Context) (float64, float64, error) {
					return c.choice(ctx, n)
				})
			},
		})
	}
	return rows
}

// choice returns the time of the chosen algorithm, and the shortest time of all suitable ones:
// one program measures them in alternation, on the same links.
func (c *collectives) choice(ctx context.Context, n devices.Size) (chosen, fastest float64, err error) {
	rows, err := c.perf(ctx, "tcp", 4, "--compare", "--operation", "allreduce", "--private",
		"--sizes", strconv.FormatUint(uint64(n), 10), "--rounds", strconv.Itoa(c.opts.times))
	if err != nil {
		return 0, 0, err
	}
	for i := range rows {
		if s := rows[i].Seconds; i == 0 || s < fastest {
			fastest = s
		}
	}
	if len(rows) < 2 || rows[0].Because != "model" {
		return 0, 0, fmt.Errorf("there is nothing to choose from: %+v", rows)
	}
	return rows[0].Seconds, fastest, nil
}

// fusionRow compares all-reduce of gradients in buckets with one call per gradient.
func (c *collectives) fusionRow() row {
	return row{
		name: "1000 gradients of 16 KiB by tcp, one step", unit: micros,
		wants: []want{{of: "one by one", against: "fused", bound: 5}},
		custom: func(ctx context.Context, rounds int) (result, error) {
			return together(ctx, rounds, "fused", "one by one", func(ctx context.Context) (float64, float64, error) {
				rows, err := c.perf(ctx, "tcp", 2, "--operation", "gradients", "--rounds", strconv.Itoa(c.opts.times))
				if err == nil && len(rows) != 2 {
					err = fmt.Errorf("%d rows of gradients, not 2", len(rows))
				}
				if err != nil {
					return 0, 0, err
				}
				return rows[0].Seconds, rows[1].Seconds, nil
			})
		},
	}
}

// allocationRow counts the heap allocations of a call.
func (c *collectives) allocationRow() row {
	return row{
		name: "allocations of one all-reduce of 1 KiB", unit: factor,
		wants: []want{{of: "shm", bound: 0.05, atMost: true}, {of: "tcp", bound: 0.05, atMost: true}},
		notes: []string{"All of the process's, divided by the calls: what the runtime does by itself is among them."},
		custom: func(ctx context.Context, rounds int) (result, error) {
			return together(ctx, rounds, "shm", "tcp", func(ctx context.Context) (float64, float64, error) {
				a, err := c.one(ctx, "shm", "--operation", "allreduce", "--sizes", "1024")
				if err != nil {
					return 0, 0, err
				}
				b, err := c.one(ctx, "tcp", "--operation", "allreduce", "--sizes", "1024")
				return a.Allocations, b.Allocations, err
			})
		},
	}
}

// one returns the only row of a run with two ranks.
func (c *collectives) one(ctx context.Context, transport string, args ...string) (perf.CollectiveRow, error) {
	rows, err := c.perf(ctx, transport, 2, append(args, "--rounds", strconv.Itoa(c.opts.times))...)
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%d rows of %v, not 1", len(rows), args)
	}
	if err != nil {
		return perf.CollectiveRow{}, err
	}
	return rows[0], nil
}

// picture draws bus bandwidth by size, if it was measured.
func (c *collectives) picture(context.Context, io.Writer) error {
	if !c.measured {
		return nil
	}
	lines := map[string]plotter.XYs{}
	for _, g := range c.groups {
		for _, n := range allSizes() {
			if series := g.took[point{2, n}]; n != 0 && len(series) > 0 {
				lines[g.name] = append(lines[g.name], plotter.XY{X: float64(n), Y: float64(n) / series.Median() / 1e9})
			}
		}
	}
	return drawTo(c.opts.collectivesPicture, func(w io.Writer) error {
		return drawLines("all-reduce of float32, 2 ranks of one host: bus bandwidth by size", lines, w)
	})
}
