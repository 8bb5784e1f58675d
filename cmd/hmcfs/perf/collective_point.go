package perf

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// variant is one of the compared ways to execute a call.
type variant struct {
	call *collective.Call
	// bounce is the same call in host memory, for a bounced variant.
	bounce *collective.Call
	row    CollectiveRow
	took   []float64
	heap   uint64
}

// point measures one size of one kind, in all requested variants, the first of which is the
// group's own choice.
func (m *Meter) point(ctx context.Context, kind plan.Kind, size devices.Size) ([]CollectiveRow, error) {
	all, err := m.variants(ctx, kind, size)
	if err != nil {
		return nil, err
	}
	calls := 1
	if size < short {
		calls = together
	}
	for round := -m.o.WarmUp; round < m.o.Rounds; round++ {
		for _, v := range all {
			if err := m.turn(ctx, v, calls, round >= 0); err != nil {
				return nil, err
			}
		}
	}
	rows := make([]CollectiveRow, len(all))
	for i, v := range all {
		v.row.Seconds, v.row.P99 = quantiles(v.took)
		v.row.Allocations = float64(v.heap) / float64(m.o.Rounds*calls)
		if v.row.Seconds > 0 {
			r := collective.Report{Task: plan.Task{Kind: kind, Ranks: m.g.Size(), Type: m.o.Type, Count: uint64(size) / m.o.Type.Size()}}
			r.Measured = time.Duration(v.row.Seconds * 1e9)
			v.row.AlgorithmBandwidth, v.row.BusBandwidth = r.Bandwidths()
		}
		rows[i] = v.row
	}
	overFastest(rows)
	return rows, nil
}

// overFastest computes the ratio of each row to the fastest of them.
func overFastest(rows []CollectiveRow) {
	least := slices.MinFunc(rows, func(a, b CollectiveRow) int { return cmp.Compare(a.Seconds, b.Seconds) }).Seconds
	if len(rows) < 2 || least <= 0 {
		return
	}
	for i := range rows {
		rows[i].Fastest = rows[i].Seconds / least
	}
}

// variants returns the variants of a call: the group's own choice, then those to compare
// with it. All ranks get the same list.
func (m *Meter) variants(ctx context.Context, kind plan.Kind, size devices.Size) ([]*variant, error) {
	call, err := m.call(m.all, kind, size)
	if err != nil {
		return nil, err
	}
	row := CollectiveRow{Kind: kind.String(), Ranks: m.g.Size(), Bytes: size, Type: m.o.Type.String()}
	all := []*variant{{call: call, row: row}}
	if m.host != nil && kind != plan.Barrier {
		v := &variant{call: call, row: row}
		if v.bounce, err = m.call(m.host, kind, size); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	if !m.o.Compare {
		return all, nil
	}
	// Whether an algorithm can be compared is determined by running it: those that need
	// shared memory are omitted if it is not shared.
	if err = m.g.Do(ctx, call); err != nil {
		return nil, err
	}
	chosen := m.last.Algorithm
	p, err := m.g.Compile(call)
	if err != nil {
		return nil, err
	}
	for _, a := range plan.Algorithms() {
		if a == chosen || plan.Can(p.Task, p.Shape, a) != nil {
			continue
		}
		with := *call
		if with.Plan, err = plan.Compile(p.Task, p.Shape, a); err != nil {
			return nil, err
		}
		if err = m.g.Do(ctx, &with); err != nil {
			return nil, err
		}
		if m.last.Algorithm == a {
			all = append(all, &variant{call: &with, row: row})
		}
	}
	return all, nil
}

// turn measures a variant once, and records the result if counts is set.
func (m *Meter) turn(ctx context.Context, v *variant, calls int, counts bool) error {
	if err := m.prove(ctx, v); err != nil {
		return err
	}
	times, heap, err := m.round(ctx, calls, func() error { return m.do(ctx, v) })
	if err != nil {
		return err
	}
	v.row.describe(m.last)
	if v.bounce != nil {
		v.row.Path = Bounced
	}
	slowest, err := m.slowest(ctx, times)
	if err != nil || !counts {
		return err
	}
	v.took, v.heap = append(v.took, slowest), v.heap+heap
	return nil
}

// describe copies fields from the report of a call.
func (row *CollectiveRow) describe(r *collective.Report) {
	row.Algorithm, row.Because, row.Path, row.Messages = r.Algorithm, r.Because, r.Path, r.Messages
	row.Predicted = r.Predicted.Seconds()
}

// do executes a variant once.
func (m *Meter) do(ctx context.Context, v *variant) error {
	if v.bounce == nil {
		return m.g.Do(ctx, v.call)
	}
	if err := whole(ctx, v.bounce.Source, v.call.Source, true); err != nil {
		return err
	}
	if err := m.g.Do(ctx, v.bounce); err != nil || !m.hasResult(v.call.Kind) {
		return err
	}
	return whole(ctx, v.bounce.Result, v.call.Result, false)
}

// hasResult reports whether this rank has a result.
func (m *Meter) hasResult(k plan.Kind) bool { return k != plan.Reduce || m.g.Rank() == 0 }

// whole copies a view to the same place of host memory, or back.
func whole(ctx context.Context, host, v domain.View, load bool) error {
	if v.Size() == 0 {
		return nil
	}
	span := transport.HostSpan(host.Buffer().Host(host.Offset(), host.Size()))
	if load {
		return v.Buffer().Load(ctx, span, v.Offset())
	}
	return v.Buffer().Store(ctx, v.Offset(), span)
}

// round makes some calls, and returns the seconds per call, and the number of heap
// allocations.
func (m *Meter) round(ctx context.Context, calls int, call func() error) (each float64, heap uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	// Reading the statistics stops the process, and a rank that reaches the first barrier
	// early may sleep there: after the second one all are awake, and begin together.
	for range 2 {
		if err = m.g.Barrier(ctx); err != nil {
			return 0, 0, err
		}
	}
	begin := time.Now()
	for range calls {
		if err = call(); err != nil {
			return 0, 0, err
		}
	}
	each = time.Since(begin).Seconds() / float64(calls)
	runtime.ReadMemStats(&after)
	return each, after.Mallocs - before.Mallocs, nil
}
