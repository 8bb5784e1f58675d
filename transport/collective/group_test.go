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
}

// newRanks makes a group of n ranks that are goroutines.
func newRanks(t testing.TB, n int, o Options) *ranks {
	t.Helper()
	if o.Costs == nil {
		o.Costs = someCosts()
	}
	all, err := fabric.Local(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		t.Cleanup(func() { _ = f.Close() })
	}
	return groupsOf(t, all, o)
}

// someCosts saves the time to measure them.
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

// together runs a function as each of n ranks, at the same time.
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

// owns has buffers be closed at the end.
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

// mine is a buffer for each rank.
func (w *ranks) mine(n int, size uint64) []*region.Buffer {
	w.t.Helper()
	out := make([]*region.Buffer, n)
	for r := range out {
		out[r] = w.buffer(size)
	}
	return out
}

// sample is count elements of a type, small enough for any operation to be worth
// looking at.
func sample(t elem.Type, count, seed uint64) []byte {
	p := kit.Bytes(seed, 0, int(count*t.Size()))
	switch t {
	case elem.Float16, elem.BFloat16, elem.Float32, elem.Float64:
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range count {
			put(t, p[i*t.Size():], r.Float64()*4-2)
		}
	}
	return p
}

// trial is a task and how it is tried.
type trial struct {
	task plan.Task
	// shared has the memory be used in place.
	shared bool
}

// memory kinds of a trial are those of the function that makes them.
type allocate func(n uint64) *region.Buffer

// try does a task at all ranks, and compares the results with the reference's.
func (w *ranks) try(x trial, alloc allocate, seed uint64) error {
	t, n := x.task, len(w.groups)
	t.Ranks = n
	size := max(t.Type.Size(), 1)
	sources, results, want := make([][]byte, n), make([]domain.View, n), make([][]byte, n)
	calls := make([]*Call, n)
	for r := range n {
		rank := plan.Rank(r)
		sl, rl := t.SourceLen(rank), t.ResultLen(rank)
		sources[r] = sample(t.Type, sl, seed+uint64(r))
		var source, result domain.View
		if t.InPlace {
			whole := alloc(max(sl, rl) * size)
			source, result = view(w.t, whole, t.Type, 0, sl), view(w.t, whole, t.Type, 0, rl)
			part := plan.Part(t.Count, r, n)
			switch t.Kind {
			case plan.ReduceScatter:
				result = view(w.t, whole, t.Type, part.Off, rl)
			case plan.AllGather:
				source = view(w.t, whole, t.Type, part.Off, sl)
			}
		} else {
			source, result = view(w.t, alloc(sl*size), t.Type, 0, sl), view(w.t, alloc(rl*size), t.Type, 0, rl)
		}
		if err := source.Buffer().Store(w.t.Context(), source.Offset(), transport.HostSpan(sources[r])); err != nil && sl > 0 {
			return err
		}
		results[r] = result
		calls[r] = &Call{Kind: t.Kind, Source: source, Result: result, Op: t.Op, Root: t.Root}
	}
	for r := range n {
		want[r] = reference(t, plan.Rank(r), sources)
	}
	err := together(n, func(r int) error {
		if x.shared {
			for _, v := range []domain.View{calls[r].Source, calls[r].Result} {
				if mapped, err := w.groups[r].Share(w.t.Context(), v.Buffer()); err != nil || !mapped {
					return fmt.Errorf("share: %v, %w", mapped, err)
				}
			}
		}
		return w.groups[r].Do(w.t.Context(), calls[r])
	})
	if err != nil {
		return err
	}
	for r := range n {
		got := make([]byte, len(want[r]))
		if len(got) == 0 {
			continue
		}
		if err := results[r].Buffer().Load(w.t.Context(), transport.HostSpan(got), results[r].Offset()); err != nil {
			return err
		}
		if at := differ(t, got, want[r]); at >= 0 {
			return fmt.Errorf("rank %d: element %d is %x, not %x", r, at, got[uint64(at)*size:uint64(at+1)*size], want[r][uint64(at)*size:uint64(at+1)*size])
		}
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

// reference is a rank's result, made in the order of the ranks.
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
	}
	return out
}

// TestAllReduceHere is the first example of the contract: eight ranks with 0 to 7.
func TestAllReduceHere(t *testing.T) {
	w := newRanks(t, 8, Options{})
	for _, shared := range []bool{false, true} {
		for _, count := range []uint64{1, 7, 8, 9, 100, 20_000} {
			x := trial{plan.Task{Kind: plan.AllReduce, Type: elem.Int32, Op: elem.Sum, Count: count}, shared}
			if err := w.try(x, w.buffer, count); err != nil {
				t.Errorf("%+v: %v", x, err)
			}
		}
	}
	if err := together(8, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
		t.Error(err)
	}
}
