package collective

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/topology"
)

// numbers makes a call with count fp32 numbers at all ranks, and compares the results with
// known figures: source and want return element i of a rank.
func (w *ranks) numbers(c Call, count uint64, source, want func(r, i int) float64) error {
	w.t.Helper()
	n := len(w.groups)
	t := plan.Task{Kind: c.Kind, Ranks: n, Count: count, Root: c.Root}
	sources, results := make([]*region.Buffer, n), make([]*region.Buffer, n)
	at := func(b *region.Buffer, i int) []byte { return b.Host(devices.Offset(4*i), 4) }
	for r := range n {
		sources[r], results[r] = w.buffer(4*t.SourceLen(plan.Rank(r))), w.buffer(4*t.ResultLen(plan.Rank(r)))
		for i := range int(t.SourceLen(plan.Rank(r))) {
			put(elem.Float32, at(sources[r], i), source(r, i))
		}
	}
	err := together(n, func(r int) error {
		mine := c
		mine.Source = view(w.t, sources[r], elem.Float32, 0, t.SourceLen(plan.Rank(r)))
		mine.Result = view(w.t, results[r], elem.Float32, 0, t.ResultLen(plan.Rank(r)))
		return w.groups[r].Do(w.t.Context(), &mine)
	})
	for r := range n {
		for i := range int(t.ResultLen(plan.Rank(r))) {
			if got := number(elem.Float32, at(results[r], i)); err == nil && got != want(r, i) {
				err = fmt.Errorf("rank %d of %d: element %d is %v, not %v", r, n, i, got, want(r, i))
			}
		}
	}
	return err
}

// eight returns the rank table of hcomm's example.
func eight() []byte {
	var servers [2]string
	for r := range 8 {
		servers[r/4] += fmt.Sprintf(`,{"device_id":"%d","rank_id":"%d","device_ip":"192.168.1.%d"}`, r%4, r, r+1)
	}
	return fmt.Appendf(nil, `{"version":"1.0","status":"completed","server_count":"2","server_list":[
		{"server_id":"a","device":[%s]},{"server_id":"b","device":[%s]}]}`, servers[0][1:], servers[1][1:])
}

// TestExample is hcomm's own example: eight ranks with the numbers 0 to 7, connected as
// goroutines, by a rank table, and by a directory.
func TestExample(t *testing.T) {
	add := func(w *ranks) {
		t.Helper()
		err := w.numbers(Call{Kind: plan.AllReduce, Op: elem.Sum}, 8,
			func(_, i int) float64 { return float64(i) },
			func(_, i int) float64 { return []float64{0, 8, 16, 24, 32, 40, 48, 56}[i] })
		if err != nil {
			t.Error(err)
		}
	}
	add(newRanks(t, 8, Options{}))
	g, err := topology.Parse(eight())
	if err != nil {
		t.Fatal(err)
	}
	places, err := g.Ranks()
	if err != nil || len(places) != 8 {
		t.Fatal(places, err)
	}
	order, err := g.Ring(places, 32)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Algorithm: plan.Ring, Topology: g.Hash()}
	for _, r := range order {
		o.Order = append(o.Order, plan.Rank(r))
	}
	add(newRanks(t, 8, o))
	for _, backend := range []job.Backend{job.SHM, job.TCP} {
		add(groupsOf(t, meet(t, 8, backend), Options{}))
	}
}

// meet makes the fabrics of a job whose ranks know only a directory.
func meet(t *testing.T, n int, backend job.Backend) []fabric.Fabric {
	t.Helper()
	dir := t.TempDir()
	all := make([]fabric.Fabric, n)
	err := together(n, func(r int) error {
		j, err := job.Init(t.Context(), job.Options{Rank: r, World: n, Dir: dir, Timeout: time.Minute, Backend: backend})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = j.Close() })
		all[r] = j.World().Fabric()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFigures checks simpler's figures for the collectives other than reductions to a root:
// 64 numbers i + 100·rank of each rank.
func TestFigures(t *testing.T) {
	start := func(r, i int) float64 { return float64(100*r + i) }
	for _, n := range []int{2, 4} {
		for _, a := range append(plan.Algorithms(), "") {
			w := newRanks(t, n, Options{Algorithm: a})
			f := float64(n)
			err := errors.Join(
				w.numbers(Call{Kind: plan.AllGather}, 64*uint64(n), start, func(_, i int) float64 { return start(i/64, i%64) }),
				w.numbers(Call{Kind: plan.Broadcast}, 64, start, func(_, i int) float64 { return float64(i) }),
				w.numbers(Call{Kind: plan.ReduceScatter, Op: elem.Sum}, 64*uint64(n), start,
					func(r, j int) float64 { return f*float64(64*r+j) + 100*f*(f-1)/2 }),
				w.numbers(Call{Kind: plan.AllToAll}, 64*uint64(n),
					func(r, i int) float64 { return float64(1000*r + 100*(i/64) + i%64) },
					func(r, i int) float64 { return float64(1000*(i/64) + 100*r + i%64) }),
			)
			if err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
	}
}

// TestBlocks sends 1 MiB of the byte 10·rank + peer from each rank to each peer.
func TestBlocks(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8} {
		for _, a := range []plan.Algorithm{plan.Pairwise, plan.Direct} {
			if err := newRanks(t, n, Options{Algorithm: a}).blocks(a == plan.Direct); err != nil {
				t.Errorf("%s of %d: %v", a, n, err)
			}
		}
	}
}

func (w *ranks) blocks(shared bool) error {
	block, n := uint64(devices.MiB), len(w.groups)
	if kit.Race() {
		block = 4 << 10
	}
	size := block * uint64(n)
	sources, results := w.mine(n, size), w.mine(n, size)
	part := func(b *region.Buffer, of int) []byte {
		return b.Host(devices.Offset(uint64(of)*block), devices.Size(block))
	}
	return together(n, func(r int) error {
		for peer := range n {
			copy(part(sources[r], peer), bytes.Repeat([]byte{byte(10*r + peer)}, int(block)))
		}
		c := &Call{
			Kind: plan.AllToAll, Source: view(w.t, sources[r], elem.Uint8, 0, size),
			Result: view(w.t, results[r], elem.Uint8, 0, size),
		}
		if shared {
			if err := w.share(r, c); err != nil {
				return err
			}
		}
		if err := w.groups[r].Do(w.t.Context(), c); err != nil {
			return err
		}
		for peer := range n {
			if got := part(results[r], peer); bytes.Count(got, []byte{byte(10*peer + r)}) != int(block) {
				return fmt.Errorf("something else of rank %d: %d…", peer, got[0])
			}
		}
		return nil
	})
}

// TestEveryRoot uses each rank of groups of up to nine ranks as the root of a tree.
func TestEveryRoot(t *testing.T) {
	for n := 1; n <= 9; n++ {
		w := newRanks(t, n, Options{Algorithm: plan.Binomial})
		for root := range plan.Rank(n) {
			for _, k := range []plan.Kind{plan.Broadcast, plan.Reduce} {
				x := plan.Task{Kind: k, Count: 1000, Type: elem.Int32, Root: root}
				if k.Combines() {
					x.Op = elem.Sum
				}
				if err := w.try(trial{task: x}, w.buffer, uint64(root)); err != nil {
					t.Errorf("%v to or from %d of %d: %v", k, root, n, err)
				}
			}
		}
	}
}

// TestChoice checks for many sizes that the chosen algorithm is the fastest by the model
// among all that can do the task, and that every rank chooses it.
func TestChoice(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		all, err := fabric.Local(n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			all[i] = apart{all[i], 1}
		}
		w := groupsOf(t, all, Options{})
		for count := uint64(1); count <= 1<<26; count *= 4 {
			for _, k := range []plan.Kind{plan.AllReduce, plan.ReduceScatter, plan.AllGather, plan.Broadcast, plan.Reduce} {
				checkChoice(t, w, plan.Task{Kind: k, Ranks: n, Count: count, Type: elem.Float32, InPlace: true})
			}
		}
	}
}

func checkChoice(t *testing.T, w *ranks, task plan.Task) {
	t.Helper()
	if task.Kind.Combines() {
		task.Op = elem.Sum
	}
	for _, g := range w.groups {
		g.mu.Lock()
		got, err := g.planner.choose(task, false)
		shape := g.planner.shape(false)
		g.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		least := got.predicted
		all, err := plan.Estimates(task, shape, g.Costs())
		for _, e := range all {
			least = min(least, e.Time)
		}
		if err != nil || got.because != "model" || got.predicted != least {
			t.Errorf("%+v: rank %d takes %s, which takes %v; the least is %v (%v)", task, g.Rank(), got.plan.Algorithm, got.predicted, least, err)
		}
	}
}

// TestImpossible tries cases that simpler's example ignores: no ranks, one too many, and a
// root that is not a rank.
func TestImpossible(t *testing.T) {
	for _, n := range []int{-1, 0, plan.MaxRanks + 1} {
		if _, err := fabric.Local(n); err == nil || !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
	w := newRanks(t, 4, Options{})
	for r, g := range w.groups {
		v := view(t, w.buffer(1024), elem.Float32, 0, 256)
		if err := g.Reduce(t.Context(), v, v, elem.Sum, 4); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "root 4") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestPlanKept compiles plans, encodes them, decodes them at each rank and uses them: the
// results are those of normal calls. A plan of another topology is rejected by decoding and
// by use.
func TestPlanKept(t *testing.T) {
	for _, a := range append(plan.Algorithms(), "") {
		w := newRanks(t, 4, Options{Algorithm: a, Topology: "here"})
		tasks(4, []uint64{1, 5000}, func(x plan.Task) {
			for _, shared := range []bool{false, true} {
				if err := w.kept(trial{task: x, shared: shared}); err != nil {
					t.Errorf("%s: %+v, shared %v: %v", a, x, shared, err)
				}
			}
		})
		if err := w.keptBarrier(); err != nil {
			t.Errorf("%s: barrier: %v", a, err)
		}
	}
}

// kept tries a task with a plan that was encoded and decoded.
func (w *ranks) kept(x trial) error {
	source, result := w.views(&x.task, 0, w.buffer)
	text, err := w.compiled(&Call{Kind: x.task.Kind, Source: source, Result: result, Op: x.task.Op, Root: x.task.Root})
	if err != nil {
		return err
	}
	x.plans = make([]*plan.Plan, len(w.groups))
	for r := range x.plans {
		if x.plans[r], err = plan.Decode(text, "here"); err != nil {
			return err
		}
	}
	return w.try(x, w.buffer, x.task.Count)
}

func (w *ranks) keptBarrier() error {
	text, err := w.compiled(&Call{Kind: plan.Barrier})
	if err != nil {
		return err
	}
	return together(len(w.groups), func(r int) error {
		p, err := plan.Decode(text, "here")
		if err != nil {
			return err
		}
		return w.groups[r].Do(w.t.Context(), &Call{Kind: plan.Barrier, Plan: p})
	})
}

// compiled returns an encoded plan.
func (w *ranks) compiled(c *Call) ([]byte, error) {
	p, err := w.groups[0].Compile(c)
	if err != nil {
		return nil, err
	}
	text, err := p.Encode()
	if err != nil {
		return nil, err
	}
	if _, err := plan.Decode(text, "there"); !errors.Is(err, plan.ErrStale) {
		return nil, fmt.Errorf("of another topology: %w", err)
	}
	return text, nil
}
