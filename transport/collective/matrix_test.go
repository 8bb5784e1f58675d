package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// kinds returns all kinds that have elements.
func kinds() []plan.Kind {
	return []plan.Kind{plan.AllReduce, plan.ReduceScatter, plan.AllGather, plan.Broadcast, plan.Reduce, plan.AllToAll}
}

func types() []elem.Type {
	return []elem.Type{elem.Int8, elem.Int32, elem.Int64, elem.Uint8, elem.Float16, elem.BFloat16, elem.Float32, elem.Float64}
}

func ops() []elem.Op { return []elem.Op{elem.Sum, elem.Prod, elem.Min, elem.Max, elem.Avg} }

// tasks goes through kinds and counts for n ranks, with types, operations and
// roots in turn.
func tasks(n int, counts []uint64, do func(t plan.Task)) {
	turn := n
	for _, k := range kinds() {
		for _, count := range counts {
			for _, in := range []bool{false, true} {
				turn++
				t := plan.Task{Kind: k, Ranks: n, Count: count, Type: types()[turn%8], InPlace: in && k != plan.AllToAll}
				if k.Combines() {
					t.Op = ops()[turn%5]
				}
				if k.Rooted() {
					t.Root = plan.Rank(turn % n)
				}
				do(t)
			}
		}
	}
}

// TestEveryAlgorithm runs every algorithm for every kind that it can do.
func TestEveryAlgorithm(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
		counts := []uint64{0, 1, uint64(n) - 1, uint64(n), uint64(n) + 1, 100, 800, 1024, 4099}
		if n > 8 || kit.Race() {
			counts = []uint64{1, uint64(n) + 1, 2051}
		}
		for _, a := range plan.Algorithms() {
			t.Run(fmt.Sprintf("%d/%s", n, a), func(t *testing.T) {
				t.Parallel()
				w := newRanks(t, n, Options{Algorithm: a})
				w.everyTask(t, a, counts)
				for range 20 {
					if err := together(n, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// shape returns the shape of a group's plans.
func (w *ranks) shape(mapped bool) plan.Shape {
	g := w.groups[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.planner.shape(mapped)
}

// everyTask executes all tasks that an algorithm can do.
func (w *ranks) everyTask(t *testing.T, a plan.Algorithm, counts []uint64) {
	t.Helper()
	shape := w.shape(a == plan.Direct)
	tasks(len(w.groups), counts, func(x plan.Task) {
		if plan.Can(x, shape, a) != nil {
			return
		}
		if err := w.try(trial{task: x, shared: a == plan.Direct && x.Count > 0}, w.buffer, x.Count); err != nil {
			t.Errorf("%+v: %v", x, err)
		}
	})
}

// TestEveryElement combines every type by every operation.
func TestEveryElement(t *testing.T) {
	t.Parallel()
	for _, a := range []plan.Algorithm{plan.Direct, plan.Ring, ""} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", a, shared), func(t *testing.T) {
				t.Parallel()
				w := newRanks(t, 3, Options{Algorithm: a})
				for _, typ := range types() {
					for _, op := range ops() {
						for _, count := range []uint64{33, 70_001} {
							x := plan.Task{Kind: plan.AllReduce, Count: count, Type: typ, Op: op}
							if err := w.try(trial{task: x, shared: shared}, w.buffer, count); err != nil {
								t.Errorf("%v %v × %d: %v", op, typ, count, err)
							}
						}
					}
				}
			})
		}
	}
}

// TestLarge uses a count that is not a multiple of anything.
func TestLarge(t *testing.T) {
	count := uint64(1<<20 + 3)
	if kit.Race() {
		count = 1<<15 + 3
	}
	for _, n := range []int{2, 4} {
		for _, shared := range []bool{false, true} {
			w := newRanks(t, n, Options{})
			tasks(n, []uint64{count}, func(x plan.Task) {
				if err := w.try(trial{task: x, shared: shared}, w.buffer, 5); err != nil {
					t.Errorf("%+v: %v", x, err)
				}
			})
		}
	}
}

// TestContract checks the sums of the seeds: 4i+600 and 8i+2800.
func TestContract(t *testing.T) {
	for n, want := range map[int][2]float64{4: {4, 600}, 8: {8, 2800}, 2: {2, 100}} {
		w := newRanks(t, n, Options{})
		results, buffers := make([][]byte, n), make([]*region.Buffer, n)
		for r := range n {
			buffers[r] = w.buffer(1024)
		}
		err := together(n, func(r int) error {
			b := w.groups[r]
			v := view(t, buffers[r], elem.Float32, 0, 256)
			p := v.Buffer().Host(0, 1024)
			for i := range 256 {
				put(elem.Float32, p[4*i:], float64(i+100*r))
			}
			results[r] = p
			return b.AllReduce(t.Context(), v, v, elem.Sum)
		})
		if err != nil {
			t.Fatal(err)
		}
		for r := range n {
			for i := range 256 {
				if got := number(elem.Float32, results[r][4*i:]); got != want[0]*float64(i)+want[1] {
					t.Fatalf("rank %d of %d: element %d is %v", r, n, i, got)
				}
			}
		}
	}
}

// TestReduce is the reduction to a root in simpler's example: out[0] is 2800 and out[255]
// 4840 for eight ranks. The results of the other ranks are not modified.
func TestReduce(t *testing.T) {
	for _, a := range []plan.Algorithm{"", plan.Binomial, plan.Chain, plan.Ordered, plan.Direct} {
		for n, want := range map[int][3]float64{8: {2800, 4840, 977920}, 4: {600, 1620, 284160}} {
			w := newRanks(t, n, Options{Algorithm: a})
			sources, results := w.mine(n, 1024), w.mine(n, 1024)
			err := together(n, func(r int) error {
				for i := range 256 {
					put(elem.Float32, sources[r].Host(devices.Offset(4*i), 4), float64(i+100*r))
					put(elem.Float32, results[r].Host(devices.Offset(4*i), 4), -1)
				}
				return w.groups[r].Reduce(t.Context(), view(t, results[r], elem.Float32, 0, 256),
					view(t, sources[r], elem.Float32, 0, 256), elem.Sum, 1)
			})
			if err != nil {
				t.Fatal(err)
			}
			for r := range n {
				at := func(i int) float64 { return number(elem.Float32, results[r].Host(devices.Offset(4*i), 4)) }
				sum := 0.0
				for i := range 256 {
					sum += at(i)
				}
				got := [3]float64{at(0), at(255), sum}
				if r == 1 && got != want || r != 1 && got != [3]float64{-1, -1, -256} {
					t.Errorf("%s, rank %d of %d: %v", a, r, n, got)
				}
			}
		}
	}
}

// TestRefused makes invalid calls.
func TestRefused(t *testing.T) {
	w := newRanks(t, 1, Options{})
	g := w.groups[0]
	b := w.buffer(100)
	f32, i16 := view(t, b, elem.Float32, 0, 4), view(t, b, elem.Int16, 16, 4)
	overlap := view(t, b, elem.Float32, 1, 4)
	for name, c := range map[string]Call{
		"no kind":          {Result: f32, Source: f32},
		"no operation":     {Kind: plan.AllReduce, Result: f32, Source: f32},
		"types differ":     {Kind: plan.AllReduce, Result: i16, Source: f32, Op: elem.Sum},
		"no such elements": {Kind: plan.AllReduce, Result: i16, Source: i16, Op: elem.Sum},
		"counts differ":    {Kind: plan.AllReduce, Result: view(t, b, elem.Float32, 8, 3), Source: f32, Op: elem.Sum},
		"overlap":          {Kind: plan.AllReduce, Result: overlap, Source: f32, Op: elem.Sum},
		"root":             {Kind: plan.Broadcast, Result: f32, Source: f32, Root: 1},
	} {
		if err := g.Do(t.Context(), &c); !errors.Is(err, ErrArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []Options{
		{Algorithm: "rin"}, {Check: "sometimes"}, {Algorithms: map[plan.Kind]plan.Algorithm{plan.AllReduce: "x"}},
	} {
		if _, err := New(t.Context(), g.fabric, o); !errors.Is(err, ErrArgument) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Barrier(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestMany uses the maximum number of ranks, far more than processors.
func TestMany(t *testing.T) {
	if kit.Race() {
		t.Skip("many goroutines take long under the race detector")
	}
	w := newRanks(t, plan.MaxRanks, Options{})
	ring := newRanks(t, 33, Options{Algorithm: plan.Ring})
	for _, k := range []plan.Kind{plan.AllReduce, plan.AllToAll, plan.AllGather} {
		x := plan.Task{Kind: k, Count: 1000, Type: elem.Int64}
		if k.Combines() {
			x.Op = elem.Sum
		}
		for _, y := range []*ranks{w, ring} {
			if err := y.try(trial{task: x, shared: false}, y.buffer, 1); err != nil {
				t.Errorf("%+v: %v", x, err)
			}
		}
	}
	if err := together(plan.MaxRanks, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
		t.Error(err)
	}
}
