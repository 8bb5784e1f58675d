package collective

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// reported runs a call at n new ranks, and returns the reports.
func reported(t *testing.T, n int, a plan.Algorithm, c Call) []Report {
	t.Helper()
	const size = 8 * 100_000
	reports := make([]Report, n)
	w := newRanks(t, n, Options{Algorithm: a})
	buffers := w.mine(n, size)
	for r := range n {
		w.groups[r].opts.Observe = func(got *Report) { reports[r] = *got }
	}
	err := together(n, func(r int) error {
		mine := c
		if c.Kind != plan.Barrier {
			mine.Source = view(t, buffers[r], elem.Int64, 0, size/8)
			mine.Result = mine.Source
		}
		return w.groups[r].Do(t.Context(), &mine)
	})
	if err != nil {
		t.Fatal(err)
	}
	return reports
}

// TestMessages counts messages over links: 2(N-1) slices for a ring, ceil(log2 N) messages
// of the root of a tree and of each rank at a barrier.
func TestMessages(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8} {
		slices := uint64(2 * (n - 1))
		for r, got := range reported(t, n, plan.Ring, Call{Kind: plan.AllReduce, Op: elem.Sum}) {
			want := float64(slices) / float64(n) * 8 * 100_000
			if bytes := float64(got.Sent - slices*headSize); got.Messages != slices || bytes < want-1024 || bytes > want+1024*float64(n) {
				t.Errorf("ring, rank %d of %d: %d messages, %v bytes; not %d, %v", r, n, got.Messages, bytes, slices, want)
			}
			if got.Path != "stream" || got.Algorithm != plan.Ring || got.Because != "option" || got.Measured <= 0 {
				t.Errorf("report: %+v", got)
			}
		}
		log := uint64(bits.Len(uint(n - 1)))
		if got := reported(t, n, plan.Binomial, Call{Kind: plan.Broadcast, Root: plan.Rank(n - 1)})[n-1].Messages; got != log {
			t.Errorf("tree: the root of %d sends %d messages", n, got)
		}
		for r, got := range reported(t, n, plan.Dissemination, Call{Kind: plan.Barrier}) {
			if got.Messages != log {
				t.Errorf("barrier, rank %d of %d: %d messages", r, n, got.Messages)
			}
		}
	}
}

// TestAllocations checks that a repeated call does not allocate.
func TestAllocations(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector takes memory")
	}
	for _, a := range []plan.Algorithm{"", plan.Ring, plan.Doubling, plan.Direct} {
		for _, count := range []uint64{2, 100_000} {
			if got, err := allocations(t, a, count); got >= 1 || err != nil {
				t.Errorf("%q × %d: %v allocations, %v", a, count, got, err)
			}
		}
	}
}

// allocations counts the allocations of an AllReduce and a Barrier between two ranks.
func allocations(t *testing.T, a plan.Algorithm, count uint64) (float64, error) {
	t.Helper()
	const runs = 200
	w := newRanks(t, 2, Options{Algorithm: a})
	buffers := w.mine(2, 4*count)
	if a == plan.Direct {
		if err := together(2, func(r int) error { _, err := w.groups[r].Share(t.Context(), buffers[r]); return err }); err != nil {
			return 0, err
		}
	}
	call := func(r int) error {
		v := view(t, buffers[r], elem.Float32, 0, count)
		return errors.Join(w.groups[r].AllReduce(t.Context(), v, v, elem.Max), w.groups[r].Barrier(t.Context()))
	}
	ended := make(chan error, 1)
	go func() {
		var failed error
		for range runs + 1 {
			failed = errors.Join(failed, call(1))
		}
		ended <- failed
	}()
	var failed error
	got := testing.AllocsPerRun(runs, func() { failed = errors.Join(failed, call(0)) })
	return got, errors.Join(failed, <-ended)
}

// TestBarrier checks that no rank leaves before the last one comes.
func TestBarrier(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		for _, a := range []plan.Algorithm{plan.Direct, plan.Dissemination} {
			w := newRanks(t, n, Options{Algorithm: a})
			var come atomic.Int64
			err := together(n, func(r int) error {
				random := rand.New(rand.NewPCG(uint64(n), uint64(r)))
				for round := range 1000 {
					for range random.IntN(2000) {
						_ = random.Uint64()
					}
					come.Add(1)
					if err := w.groups[r].Barrier(t.Context()); err != nil {
						return err
					}
					if got := come.Load(); got < int64(n*(round+1)) {
						return errors.New("left early")
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d ranks, %s: %v", n, a, err)
			}
		}
	}
}

// TestBarrierAgain checks that an interrupted Barrier continues with the next call.
func TestBarrierAgain(t *testing.T) {
	for _, a := range []plan.Algorithm{plan.Direct, plan.Dissemination} {
		w := newRanks(t, 3, Options{Algorithm: a})
		for range 3 {
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if err := w.groups[0].Barrier(ctx); err == nil {
					t.Errorf("%s: over without the others", a)
				}
				cancel()
			}
			if err := together(3, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
		x := trial{task: plan.Task{Kind: plan.AllReduce, Type: elem.Int32, Op: elem.Sum, Count: 1000}, shared: false}
		if err := w.try(x, w.buffer, 3); err != nil {
			t.Errorf("%s: after it: %v", a, err)
		}
	}
}

// adversarial sums numbers whose order matters, in pieces, and returns the bytes of the
// result, which must be the same at all ranks.
func adversarial(t *testing.T, o Options, shared bool, piece uint64) string {
	t.Helper()
	const n, count = 4, 10_000
	values := []float64{1e8, 1, -1e8, 3}
	w := newRanks(t, n, o)
	buffers := w.mine(n, 4*count)
	err := together(n, func(r int) error {
		p := buffers[r].Host(0, 4*count)
		for i := range count {
			put(elem.Float32, p[4*i:], values[(i+r)%n]+float64(i%7))
		}
		if shared {
			if _, err := w.groups[r].Share(t.Context(), buffers[r]); err != nil {
				return err
			}
		}
		for at := uint64(0); at < count; at += piece {
			v := view(t, buffers[r], elem.Float32, at, min(piece, count-at))
			if err := w.groups[r].AllReduce(t.Context(), v, v, elem.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	first := string(buffers[0].Host(0, 4*count))
	for _, b := range buffers {
		if string(b.Host(0, 4*count)) != first {
			t.Error("the ranks differ")
		}
	}
	return first
}

// TestDeterminism checks that the bits are the same in each run, and with Strict those of
// the order of the ranks, regardless of memory, algorithm and slicing.
func TestDeterminism(t *testing.T) {
	for _, a := range []plan.Algorithm{plan.Ring, plan.Doubling, plan.Direct, plan.NHR} {
		o := Options{Algorithm: a}
		first := adversarial(t, o, a == plan.Direct, 10_000)
		for range 9 {
			if first != adversarial(t, o, a == plan.Direct, 10_000) {
				t.Errorf("%s is another time another", a)
			}
		}
	}
	strict := adversarial(t, Options{Strict: true}, false, 10_000)
	for _, cut := range []uint64{10_000, 1000, 777} {
		for _, shared := range []bool{false, true} {
			if strict != adversarial(t, Options{Strict: true}, shared, cut) {
				t.Errorf("strict by %d, shared %v: other bits", cut, shared)
			}
		}
	}
}

// spreadFabrics connects n ranks, each of which appears to be on a host of its own.
func spreadFabrics(t testing.TB, n int) []fabric.Fabric {
	t.Helper()
	all := localFabrics(t, n)
	for i := range all {
		all[i] = apart{all[i], 1}
	}
	return all
}

// apart is a fabric whose ranks appear to be on several hosts.
type apart struct {
	fabric.Fabric

	each int
}

func (a apart) Mapped() bool { return false }

func (a apart) Duplicate(ctx context.Context) (fabric.Fabric, error) {
	f, err := a.Fabric.Duplicate(ctx)
	if err != nil {
		return nil, err
	}
	return apart{f, a.each}, nil
}

func (a apart) Nodes() []int {
	nodes := make([]int, a.Size())
	for r := range nodes {
		nodes[r] = r / a.each
	}
	return nodes
}

// TestNodes runs ranks on several hosts.
func TestNodes(t *testing.T) {
	for _, x := range [][2]int{{4, 2}, {5, 2}, {8, 4}, {6, 1}} {
		all, err := fabric.Local(x[0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			all[i] = apart{all[i], x[1]}
		}
		for _, a := range []plan.Algorithm{plan.Hierarchical, ""} {
			w := groupsOf(t, all, Options{Algorithm: a})
			tasks(x[0], []uint64{1, 1001}, func(k plan.Task) {
				if err := w.try(trial{task: k, shared: false}, w.buffer, k.Count); err != nil {
					t.Errorf("%v: %+v: %v", x, k, err)
				}
			})
		}
	}
}

// TestCosts checks that all ranks measure costs, and choose the fastest algorithm by them.
func TestCosts(t *testing.T) {
	all, err := fabric.Local(4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i] = apart{all[i], 2}
	}
	w := groupsOf(t, all, Options{Costs: &plan.Costs{}})
	if got := w.groups[0].Costs(); got != (plan.Costs{}) {
		t.Errorf("the costs that were given: %+v", got)
	}
	w = groupsOf(t, all, Options{})
	costs := w.groups[0].Costs()
	t.Logf("%+v", costs)
	for _, v := range []float64{
		float64(costs.Inside.Latency), float64(costs.Between.Latency), costs.Inside.Bandwidth, costs.Between.Bandwidth, costs.Combine, costs.Memory,
	} {
		if v <= 0 {
			t.Errorf("costs: %+v", costs)
		}
	}
	for _, g := range w.groups {
		if g.Costs() != costs {
			t.Errorf("rank %d: %+v, not %+v", g.Rank(), g.Costs(), costs)
		}
	}
	for _, count := range []uint64{1, 1000, 1 << 24} {
		v := view(t, w.buffer(4*count), elem.Float32, 0, count)
		p, err := w.groups[0].Compile(&Call{Kind: plan.AllReduce, Source: v, Result: v, Op: elem.Sum})
		if err != nil {
			t.Fatal(err)
		}
		task := p.Task
		task.InPlace = true
		best, err := plan.Estimates(task, w.shape(false), costs)
		if err != nil || best[0].Algorithm != p.Algorithm {
			t.Errorf("%d elements: %v, not the best of %+v (%v)", count, p.Algorithm, best, err)
		}
	}
}

// TestPlan uses a plan that was compiled before and does not depend on anything else.
func TestPlan(t *testing.T) {
	// Neither the model nor an option changes a plan.
	w := newRanks(t, 3, Options{Topology: "here", Algorithm: plan.Doubling})
	buffers := w.mine(3, 4000)
	v := view(t, buffers[0], elem.Float32, 0, 1000)
	p, err := plan.Compile(plan.Task{Kind: plan.AllReduce, Ranks: 3, Count: 1000, Type: elem.Float32, Op: elem.Sum},
		w.shape(false), plan.NHR)
	if err != nil {
		t.Fatal(err)
	}
	var got Report
	w.groups[0].opts.Observe = func(r *Report) { got = *r }
	do := func(p *plan.Plan) error {
		return together(3, func(r int) error {
			mine := view(t, buffers[r], elem.Float32, 0, 1000)
			return w.groups[r].Do(t.Context(), &Call{Kind: plan.AllReduce, Source: mine, Result: mine, Op: elem.Sum, Plan: p})
		})
	}
	if err = do(p); err != nil || got.Algorithm != plan.NHR || got.Because != "plan" || got.Predicted <= 0 || got.Measured <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	other := *p
	other.Shape.Topology = "there"
	if err = do(&other); !errors.Is(err, plan.ErrStale) {
		t.Errorf("of another topology: %v", err)
	}
	if err = w.groups[0].Do(t.Context(), &Call{Kind: plan.Reduce, Source: v, Result: v, Op: elem.Sum, Plan: p}); !errors.Is(err, ErrArgument) {
		t.Errorf("for another call: %v", err)
	}
}
