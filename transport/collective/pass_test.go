package collective

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// paths counts the calls by path.
type paths struct{ passed, staged, other atomic.Int64 }

func (p *paths) observe(r *Report) {
	switch r.Path {
	case pathPassed:
		p.passed.Add(1)
	case pathStaged:
		p.staged.Add(1)
	default:
		p.other.Add(1)
	}
}

// TestPassed passes device memory through areas: of all ranks, or of some with host memory
// at the others, in one segment or several. The bits are those of shared host memory, for
// every kind without parts.
func TestPassed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 5} {
		if kit.Race() && n != 3 {
			continue // to make the elements takes long under the race detector
		}
		for _, mixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/mixed=%v", n, mixed), func(t *testing.T) {
				t.Parallel()
				testPassed(t, n, mixed)
			})
		}
	}
}

func testPassed(t *testing.T, n int, mixed bool) {
	t.Helper()
	seen := &paths{}
	w := groupsOf(t, overDomain(t, n, fabric.Options{}), Options{Algorithm: plan.Direct, Observe: seen.observe})
	d, f := counted(t, sim.New(0, sim.Params{Size: devices.GiB}))
	alloc := w.on(d)
	if mixed {
		alloc, f = w.firstOn(alloc), nil
	}
	calls := int64(0)
	for _, x := range wholes(n) {
		w.passes(t, x, alloc, f)
		calls += int64(n)
	}
	if passed := seen.passed.Load(); passed == 0 || !mixed && passed != calls || seen.staged.Load() != 0 {
		t.Errorf("%d calls of %d went through areas, %d over links", passed, calls, seen.staged.Load())
	}
}

// wholes returns tasks of each kind without parts, of one segment or several.
func wholes(n int) (all []plan.Task) {
	for _, k := range []plan.Kind{plan.AllReduce, plan.Reduce, plan.Broadcast} {
		for i, count := range []uint64{20_000, 131_072, 400_003, 800_001} {
			if kit.Race() && count > 131_072 {
				continue
			}
			x := plan.Task{Kind: k, Ranks: n, Count: count, Type: elem.Float32, InPlace: i%2 == 0}
			if k.Combines() {
				x.Op = []elem.Op{elem.Sum, elem.Avg, elem.Max, elem.Prod}[i]
			}
			if k.Rooted() {
				x.Root = plan.Rank(n - 1)
			}
			all = append(all, x)
		}
	}
	return all
}

// firstOn allocates every third buffer by alloc, and the others in host memory.
func (w *ranks) firstOn(alloc allocate) allocate {
	return func(n uint64) *region.Buffer {
		w.mu.Lock()
		w.turn++
		on := w.turn%3 == 1
		w.mu.Unlock()
		if on {
			return alloc(n)
		}
		return w.buffer(n)
	}
}

// passes executes a task, and checks its bits and its memory.
func (w *ranks) passes(t *testing.T, x plan.Task, alloc allocate, f *footprint) {
	t.Helper()
	sources := make([][]byte, len(w.groups))
	for r := range sources {
		sources[r] = sample(x.Type, x.SourceLen(plan.Rank(r)), uint64(r+1))
	}
	want := make([][]byte, len(w.groups))
	for r := range want {
		if p := reference(x, plan.Rank(r), sources); len(p) > 0 {
			want[r] = p
		}
	}
	w.gives(t, x, alloc, want, bound{f, uint64(len(w.groups)) * passAreas * passArea})
}

// TestPassedPinned checks that the areas are pinned for the device as long as the group
// exists.
func TestPassedPinned(t *testing.T) {
	opened := devicetest.Open(t, sim.NewDriver(), "sim:0,size=64MiB,pinned=true")
	t.Cleanup(func() { _ = opened.Close() })
	d, ok := opened.(*sim.PinnedDevice)
	if !ok {
		t.Fatal("not a device that registers")
	}
	for _, a := range []plan.Algorithm{plan.Direct, plan.Ring} {
		w := newRanks(t, 2, Options{Algorithm: a})
		x := plan.Task{Kind: plan.AllReduce, Ranks: 2, Count: 1 << 20, Type: elem.Float32, Op: elem.Sum, InPlace: true}
		var before sim.PinCounts
		if _, err := w.outcome(x, w.reused(w.on(d), 2), func(call func() error) error {
			before, _ = d.Pins()
			failed := call()
			after, fault := d.Pins()
			if after.Pageable != before.Pageable || after.Ranges == 0 {
				failed = errors.Join(failed, fmt.Errorf("%s: copies by memory that is not registered: %+v, then %+v", a, before, after))
			}
			return errors.Join(failed, fault)
		}); err != nil {
			t.Error(err)
		}
		for _, g := range w.groups {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
		if now, fault := d.Pins(); now.Ranges != 0 || fault != nil {
			t.Errorf("%s: after Close: %+v, %v", a, now, fault)
		}
	}
}

// TestPassedFails: a device fails in the middle of a call. Every rank gets an error, no
// copy continues, and the next call works.
func TestPassedFails(t *testing.T) {
	kit.Check(t)
	for _, kind := range []faulty.Kind{faulty.CopyOut, faulty.CopyIn} {
		var left atomic.Int64
		left.Store(1 << 40)
		d := faulty.Wrap(sim.New(0, sim.Params{Size: devices.GiB}), func(op faulty.Op) error {
			if op.Kind == kind && left.Add(-1) == 0 {
				return devices.ErrDevice
			}
			return nil
		})
		t.Cleanup(func() { _ = d.Close() })
		w := newRanks(t, 2, Options{Algorithm: plan.Direct, Timeout: 20 * time.Second})
		views := make([]domain.View, 2)
		for r := range views {
			views[r] = view(t, w.on(d)(4<<20), elem.Int32, 0, 1<<20)
			if err := views[r].Buffer().Store(t.Context(), 0, transport.HostSpan(sample(elem.Int32, 1<<20, uint64(r)))); err != nil {
				t.Fatal(err)
			}
		}
		call := func(r int) error { return w.groups[r].AllReduce(t.Context(), views[r], views[r], elem.Max) }
		for _, at := range []int64{1, 4, 9, 16} {
			left.Store(at)
			errs := make([]error, 2)
			_ = together(2, func(r int) error { errs[r] = call(r); return nil })
			all := errors.Join(errs...)
			if errs[0] == nil || errs[1] == nil || !errors.Is(all, devices.ErrDevice) || errors.Is(all, ErrTimeout) {
				t.Errorf("%v %d fails: %v", kind, at, errs)
			}
			left.Store(1 << 40)
			if err := together(2, call); err != nil {
				t.Errorf("after %v %d has failed: %v", kind, at, err)
			}
		}
	}
}

// TestShareAfterStaged: the interrupt at the end of a page copy does not end the next
// rendezvous of the ranks.
func TestShareAfterStaged(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]func() []fabric.Fabric{
		"local": func() []fabric.Fabric { return localFabrics(t, 2) },
		"over":  func() []fabric.Fabric { return overDomain(t, 2, fabric.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := groupsOf(t, all(), Options{Costs: someCosts()})
			d, _ := counted(t, sim.New(0, sim.Params{Size: devices.GiB}))
			alloc := w.reused(w.on(d), 4)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for range 20 {
				if _, err := w.outcome(plan.Task{Kind: plan.ReduceScatter, Type: elem.Float32, Op: elem.Sum, Count: 100_000}, alloc, just); err != nil {
					t.Fatal(err)
				}
				if err := together(2, func(r int) error {
					b := w.buffer(4096)
					mapped, err := w.groups[r].Share(ctx, b)
					if err == nil && !mapped {
						err = errors.New("it is not mapped")
					}
					return errors.Join(err, w.groups[r].Unshare(b))
				}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestPassedApart: a rank loses its areas, like one that gives up while they are made: the
// ranks make them anew.
func TestPassedApart(t *testing.T) {
	kit.Check(t)
	w := newRanks(t, 2, Options{Algorithm: plan.Direct, Timeout: 10 * time.Second})
	d, _ := counted(t, sim.New(0, sim.Params{Size: devices.GiB}))
	alloc := w.reused(w.on(d), 2)
	x := plan.Task{Kind: plan.AllReduce, Count: 100_000, Type: elem.Int32, Op: elem.Sum, InPlace: true}
	for _, refused := range []bool{false, true, false} {
		if _, err := w.outcome(x, alloc, just); err != nil {
			t.Fatal(err)
		}
		g := w.groups[0]
		g.mu.Lock()
		if err := g.dispatcher.pass.close(t.Context()); err != nil {
			t.Error(err)
		}
		g.dispatcher.pass.refused = refused
		g.mu.Unlock()
	}
}
