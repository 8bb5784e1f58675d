package perf

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// judged measures at n ranks of this process, and returns the rows of rank 0; change may
// modify the Judge of each rank first.
func judged(t *testing.T, n int, o func(rank int) CollectiveOptions, change func(rank int, m *Meter)) ([]CollectiveRow, error) {
	t.Helper()
	all, err := fabric.Local(n)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var first []CollectiveRow
	failed := make([]error, n)
	one := func(r int) (err error) {
		var last collective.Report
		g, err := collective.New(ctx, all[r], collective.Options{Observe: func(got *collective.Report) { last = *got }})
		if err != nil {
			return err
		}
		m, err := NewMeter(ctx, g, &last, o(r))
		if err != nil {
			return errors.Join(err, g.Close()) //nolint:contextcheck // cleanup must not depend on the context
		}
		defer func() { err = errors.Join(err, g.Close(), m.Close(context.WithoutCancel(ctx))) }() //nolint:contextcheck // as above
		change(r, m)
		rows, err := m.Collectives(ctx)
		if err != nil {
			cancel() // no rank then waits for one that has given up
		}
		if r == 0 {
			first = rows
		}
		return err
	}
	var ranks sync.WaitGroup
	for r := range n {
		ranks.Go(func() { failed[r] = one(r) })
	}
	ranks.Wait()
	return first, errors.Join(failed...)
}

func noChange(int, *Meter) {}

// newTable returns a table in which memory is registered.
func newTable(t *testing.T) *region.Table {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return region.NewTable(e)
}

// every returns options with each kind and a few sizes.
func every(memory func(devices.Size) (*region.Buffer, error)) CollectiveOptions {
	return CollectiveOptions{
		Kinds: []plan.Kind{plan.AllReduce, plan.ReduceScatter, plan.AllGather, plan.Broadcast, plan.Reduce, plan.AllToAll, plan.Barrier},
		Sizes: []devices.Size{4, 100_000}, Type: elem.Float32, Rounds: 1, Memory: memory,
	}
}

// TestCompare checks that every suitable algorithm is measured alongside the chosen one.
func TestCompare(t *testing.T) {
	for _, private := range []bool{false, true} {
		rows, err := judged(t, 3, func(int) CollectiveOptions {
			o := every(newTable(t).Alloc)
			o.Compare, o.Private = true, private
			return o
		}, noChange)
		if err != nil {
			t.Fatal(err)
		}
		all := map[plan.Algorithm]bool{}
		for _, r := range rows {
			if r.Kind != "allreduce" || r.Bytes != 100_000 {
				continue
			}
			if all[r.Algorithm] {
				t.Errorf("%s is there twice", r.Algorithm)
			}
			if chosen := len(all) == 0; chosen != (r.Because == "model") || r.Fastest < 1 || r.Predicted <= 0 || r.Seconds <= 0 {
				t.Errorf("row %+v", r)
			}
			all[r.Algorithm] = true
		}
		for _, a := range []plan.Algorithm{plan.Ring, plan.NHR, plan.Doubling, plan.Binomial, plan.Chain, plan.Pairwise, plan.Ordered} {
			if !all[a] {
				t.Errorf("private %v: %s is not among %v", private, a, all)
			}
		}
		if all[plan.Direct] == private {
			t.Errorf("private %v, direct %v", private, all[plan.Direct])
		}
	}
}

// TestBounced measures device memory directly, and through host memory.
func TestBounced(t *testing.T) {
	rows, err := judged(t, 2, func(rank int) CollectiveOptions {
		d := sim.New(devices.Ordinal(rank), sim.Params{Size: 8 * devices.MiB})
		t.Cleanup(func() { _ = d.Close() })
		table := newTable(t)
		o := every(func(n devices.Size) (*region.Buffer, error) {
			mem, err := d.Alloc(t.Context(), n)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = mem.Release() })
			return table.RegisterDevice(mem.All())
		})
		o.Bounce = table.Alloc
		return o
	}, noChange)
	if err != nil {
		t.Fatal(err)
	}
	var large []CollectiveRow
	for _, r := range rows {
		if r.Bytes > 4 {
			large = append(large, r)
		}
	}
	if len(large) != 2*6 {
		t.Fatalf("%d rows", len(large))
	}
	for i, r := range large {
		if bounced := i%2 == 1; bounced != (r.Path == Bounced) || r.Path == "" || r.Path == "stream" || r.Fastest < 1 {
			t.Errorf("row %d: %+v", i, r)
		}
	}
}

// TestJudge checks that a wrong result is detected at its rank.
func TestJudge(t *testing.T) {
	for _, k := range every(nil).Kinds[:6] {
		_, err := judged(t, 2, func(int) CollectiveOptions {
			o := every(newTable(t).Alloc)
			o.Kinds, o.Sizes = []plan.Kind{k}, o.Sizes[1:]
			return o
		}, func(rank int, m *Meter) {
			if rank == 1 {
				m.made.numbers[1][0]++
			}
		})
		if err == nil || !strings.Contains(err.Error(), "element ") {
			t.Errorf("%v: %v", k, err)
		}
	}
}
