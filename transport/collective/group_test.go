package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// ranks are groups of goroutines.
type ranks struct {
	t      testing.TB
	groups []*Group
	table  *region.Table

	mu sync.Mutex
	// buffers are closed after the groups, which may have shared them.
	// +checklocks:mu
	buffers []*region.Buffer
	// turn counts what firstOn has allocated.
	// +checklocks:mu
	turn int
}

// newRanks makes a group of n ranks that are goroutines.
func newRanks(t testing.TB, n int, o Options) *ranks {
	t.Helper()
	if o.Costs == nil {
		o.Costs = someCosts()
	}
	return groupsOf(t, localFabrics(t, n), o)
}

func localFabrics(t testing.TB, n int) []fabric.Fabric {
	t.Helper()
	all, err := fabric.Local(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		t.Cleanup(func() { _ = f.Close() })
	}
	return all
}

// someCosts returns fixed costs, which saves the time to measure them.
func someCosts() *plan.Costs {
	l := plan.Link{Latency: time.Microsecond, Bandwidth: 4e9}
	return &plan.Costs{Inside: l, Between: plan.Link{Latency: 10 * time.Microsecond, Bandwidth: 2e9}, Combine: 1e10, Memory: 1e10}
}

// groupsOf makes groups over some fabrics.
func groupsOf(t testing.TB, all []fabric.Fabric, o Options) *ranks {
	t.Helper()
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	w := &ranks{t: t, groups: make([]*Group, len(all)), table: region.NewTable(engine)}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, b := range w.buffers {
			_ = b.Close(context.Background())
		}
	})
	w.fabrics(t, all, o)
	return w
}

func (w *ranks) fabrics(t testing.TB, all []fabric.Fabric, o Options) {
	t.Helper()
	errs := together(len(all), func(r int) (err error) {
		w.groups[r], err = New(t.Context(), all[r], o)
		return err
	})
	if errs != nil {
		t.Fatal(errs)
	}
	for _, g := range w.groups {
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// together runs do as each of n ranks, concurrently.
func together(n int, do func(r int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			if err := do(r); err != nil {
				errs[r] = fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// owns registers buffers to be closed at the end.
func (w *ranks) owns(b ...*region.Buffer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buffers = append(w.buffers, b...)
}

// buffer is host memory of n bytes, at least one.
func (w *ranks) buffer(n uint64) *region.Buffer {
	w.t.Helper()
	b, err := w.table.Alloc(devices.Size(max(n, 1)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.owns(b)
	return b
}

// mine returns a buffer for each rank.
func (w *ranks) mine(n int, size uint64) []*region.Buffer {
	w.t.Helper()
	out := make([]*region.Buffer, n)
	for r := range out {
		out[r] = w.buffer(size)
	}
	return out
}

// sample returns count elements of a type, small enough for the result of any operation to
// be meaningful.
func sample(t elem.Type, count, seed uint64) []byte {
	p := kit.Bytes(seed, 0, int(count*t.Size()))
	switch t {
	case elem.Float16, elem.BFloat16, elem.Float32, elem.Float64:
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range count {
			put(t, p[i*t.Size():], r.Float64()*4-2)
		}
	default:
	}
	return p
}

// trial is a task and its test conditions.
type trial struct {
	task plan.Task
	// shared shares the memory, so that it is used in place.
	shared bool
	// plans are the plans of each rank; nil leaves the choice to the group.
	plans []*plan.Plan
}

// allocate allocates a kind of memory for a trial.
type allocate func(n uint64) *region.Buffer

// try executes a task at all ranks, and compares the results with the reference.
func (w *ranks) try(x trial, alloc allocate, seed uint64) error {
	t, n := x.task, len(w.groups)
	t.Ranks = n
	sources, calls := make([][]byte, n), make([]*Call, n)
	for r := range n {
		sources[r] = sample(t.Type, t.SourceLen(plan.Rank(r)), seed+uint64(r))
		source, result := w.views(&t, r, alloc)
		if len(sources[r]) > 0 {
			if err := source.Buffer().Store(w.t.Context(), source.Offset(), transport.HostSpan(sources[r])); err != nil {
				return err
			}
		}
		calls[r] = &Call{Kind: t.Kind, Source: source, Result: result, Op: t.Op, Root: t.Root}
		if x.plans != nil {
			calls[r].Plan = x.plans[r]
		}
	}
	err := together(n, func(r int) error {
		if x.shared {
			if err := w.share(r, calls[r]); err != nil {
				return err
			}
		}
		return w.groups[r].Do(w.t.Context(), calls[r])
	})
	if err != nil {
		return err
	}
	for r := range n {
		if err := w.right(&t, r, calls[r].Result, reference(t, plan.Rank(r), sources)); err != nil {
			return err
		}
		if t.InPlace || len(sources[r]) == 0 {
			continue
		}
		if err := w.right(&t, r, calls[r].Source, sources[r]); err != nil {
			return fmt.Errorf("source: %w", err)
		}
	}
	return nil
}

// views makes the views of a rank.
func (w *ranks) views(t *plan.Task, r int, alloc allocate) (source, result domain.View) {
	w.t.Helper()
	size := max(t.Type.Size(), 1)
	sl, rl := t.SourceLen(plan.Rank(r)), t.ResultLen(plan.Rank(r))
	if !t.InPlace {
		return view(w.t, alloc(sl*size), t.Type, 0, sl), view(w.t, alloc(rl*size), t.Type, 0, rl)
	}
	whole := alloc(max(sl, rl) * size)
	part := plan.Part(t.Count, r, t.Ranks).Off
	source, result = view(w.t, whole, t.Type, 0, sl), view(w.t, whole, t.Type, 0, rl)
	if t.Kind == plan.ReduceScatter {
		result = view(w.t, whole, t.Type, part, rl)
	}
	if t.Kind == plan.AllGather {
		source = view(w.t, whole, t.Type, part, sl)
	}
	return source, result
}

// share shares a rank's memory of a call.
func (w *ranks) share(r int, c *Call) error {
	for _, v := range []domain.View{c.Source, c.Result} {
		if mapped, err := w.groups[r].Share(w.t.Context(), v.Buffer()); err != nil || !mapped {
			return fmt.Errorf("share: %v, %w", mapped, err)
		}
	}
	return nil
}

// right compares a result with the expected one.
func (w *ranks) right(t *plan.Task, r int, result domain.View, want []byte) error {
	if len(want) == 0 {
		return nil
	}
	size := t.Type.Size()
	got := make([]byte, len(want))
	if err := result.Buffer().Load(w.t.Context(), transport.HostSpan(got), result.Offset()); err != nil {
		return err
	}
	if at := differ(*t, got, want); at >= 0 {
		k := uint64(at) * size
		return fmt.Errorf("rank %d: element %d is %x, not %x", r, at, got[k:k+size], want[k:k+size])
	}
	return nil
}

func view(t testing.TB, b *region.Buffer, typ elem.Type, off, count uint64) domain.View {
	t.Helper()
	v, err := domain.NewView(b, devices.Offset(off*typ.Size()), typ, count)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// reference computes a rank's result, in the order of the ranks.
func reference(t plan.Task, rank plan.Rank, sources [][]byte) []byte {
	size := t.Type.Size()
	part := plan.Part(t.Count, int(rank), t.Ranks)
	var out []byte
	switch t.Kind {
	case plan.AllReduce, plan.Reduce, plan.ReduceScatter:
		out = slices.Clone(sources[0])
		for _, s := range sources[1:] {
			_ = elem.Combine(t.Op, t.Type, out, out, s)
		}
		if t.Op == elem.Avg {
			_ = elem.Divide(t.Type, out, uint64(t.Ranks))
		}
		if t.Kind == plan.ReduceScatter {
			out = out[part.Off*size : (part.Off+part.Len)*size]
		}
		if t.Kind == plan.Reduce && rank != t.Root {
			out = nil
		}
	case plan.AllGather:
		out = slices.Concat(sources...)
	case plan.Broadcast:
		out = sources[t.Root]
	case plan.AllToAll:
		for _, s := range sources {
			out = append(out, s[part.Off*size:(part.Off+part.Len)*size]...)
		}
	case plan.Barrier:
	}
	return out
}

// TestAllReduceHere is the first example of the contract: eight ranks with 0 to 7.
func TestAllReduceHere(t *testing.T) {
	w := newRanks(t, 8, Options{})
	for _, shared := range []bool{false, true} {
		for _, count := range []uint64{1, 7, 8, 9, 100, 20_000} {
			x := trial{task: plan.Task{Kind: plan.AllReduce, Type: elem.Int32, Op: elem.Sum, Count: count}, shared: shared}
			if err := w.try(x, w.buffer, count); err != nil {
				t.Errorf("%+v: %v", x, err)
			}
		}
	}
	if err := together(8, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
		t.Error(err)
	}
}
