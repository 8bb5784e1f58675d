package collective

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// footprint records the host memory that a device copies from and to.
type footprint struct {
	// on enables it.
	on atomic.Bool

	mu sync.Mutex
	// +checklocks:mu
	pages map[uint64]struct{}
	// +checklocks:mu
	copied map[faulty.Kind]uint64
}

func (f *footprint) hook(op faulty.Op) error {
	if len(op.Host) == 0 || !f.on.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.copied[op.Kind] += uint64(op.Bytes)
	begin := address(op.Host)
	for p := begin / 4096; p <= (begin+uint64(len(op.Host))-1)/4096; p++ {
		f.pages[p] = struct{}{}
	}
	return nil
}

// during records the copies of a call only.
func (f *footprint) during(call func() error) error {
	f.mu.Lock()
	f.pages, f.copied = map[uint64]struct{}{}, map[faulty.Kind]uint64{}
	f.mu.Unlock()
	f.on.Store(true)
	defer f.on.Store(false)
	return call()
}

// just is a during that records nothing.
func just(call func() error) error { return call() }

// got returns the size of the host memory used, and the bytes copied out and in.
func (f *footprint) got() (memory, out, in uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.pages)) * 4096, f.copied[faulty.CopyOut], f.copied[faulty.CopyIn]
}

// counted wraps a device so that its footprint is known.
func counted(t *testing.T, d devices.Device) (devices.Device, *footprint) {
	t.Helper()
	f := &footprint{}
	w := faulty.Wrap(d, f.hook)
	t.Cleanup(func() { _ = w.Close() })
	return w, f
}

// outcome executes a task with sources from a seed, and returns the results of all ranks.
func (w *ranks) outcome(x plan.Task, alloc allocate, during func(func() error) error) ([][]byte, error) {
	n := len(w.groups)
	x.Ranks = n
	calls, out := make([]*Call, n), make([][]byte, n)
	for r := range n {
		source, result := w.views(&x, r, alloc)
		if p := sample(x.Type, x.SourceLen(plan.Rank(r)), uint64(r+1)); len(p) > 0 {
			if err := source.Buffer().Store(w.t.Context(), source.Offset(), transport.HostSpan(p)); err != nil {
				return nil, err
			}
		}
		calls[r] = &Call{Kind: x.Kind, Source: source, Result: result, Op: x.Op, Root: x.Root}
	}
	err := during(func() error {
		return together(n, func(r int) error { return w.groups[r].Do(w.t.Context(), calls[r]) })
	})
	if err != nil {
		return nil, err
	}
	for r := range n {
		if size := x.ResultLen(plan.Rank(r)) * x.Type.Size(); size > 0 {
			out[r] = make([]byte, size)
			v := calls[r].Result
			if err := v.Buffer().Load(w.t.Context(), transport.HostSpan(out[r]), v.Offset()); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// TestStagedBounded runs every algorithm through a few small slots with elements that do
// not fit in them: no more host memory is used, and the bits are those of host memory.
func TestStagedBounded(t *testing.T) {
	t.Parallel()
	for n, count := range map[int]uint64{2: 300_007, 3: 200_007, 5: 140_007} {
		if kit.Race() && n != 2 {
			continue // to make the elements takes long under the race detector
		}
		if kit.Race() || testing.Short() {
			count = 140_007
		}
		for _, a := range plan.Algorithms() {
			t.Run(fmt.Sprintf("%d/%s", n, a), func(t *testing.T) {
				t.Parallel()
				o := Options{Algorithm: a, StageSlot: 64 * devices.KiB, StageSlots: 16}
				w := newRanks(t, n, o)
				d, f := counted(t, sim.New(0, sim.Params{Size: devices.GiB}))
				shape := w.shape(false)
				tasks(n, []uint64{count}, func(x plan.Task) {
					if plan.Can(x, shape, a) != nil {
						return
					}
					w.bounded(t, x, w.on(d), f)
					// The host memory of these is the caller's too.
					w.bounded(t, x, w.mixed(w.on(d)), nil)
				})
			})
		}
	}
}

// bounded executes a task on a device, and checks the memory that it uses.
func (w *ranks) bounded(t *testing.T, x plan.Task, alloc allocate, f *footprint) {
	t.Helper()
	want, err := w.outcome(x, w.buffer, just)
	if err != nil {
		t.Fatalf("%+v: %v", x, err)
	}
	most := uint64(0)
	for _, g := range w.groups {
		most += uint64(g.opts.StageSlot) * uint64(g.opts.StageSlots)
	}
	w.gives(t, x, alloc, want, bound{f, most})
}

// bound is the maximum host memory of a task; nothing is checked if seen is nil.
type bound struct {
	seen *footprint
	most uint64
}

// gives executes a task, and checks the bits of each rank's result (if any is expected),
// and the memory used.
func (w *ranks) gives(t *testing.T, x plan.Task, alloc allocate, want [][]byte, b bound) {
	t.Helper()
	during := just
	if b.seen != nil {
		during = b.seen.during
	}
	got, err := w.outcome(x, alloc, during)
	if err != nil {
		t.Fatalf("%+v: %v", x, err)
	}
	for r := range got {
		if want[r] != nil && !bytes.Equal(got[r], want[r]) {
			t.Errorf("%+v: rank %d has other bits, from byte %d", x, r, kit.FirstDiff(got[r], want[r]))
		}
	}
	if b.seen == nil {
		return
	}
	if memory, _, _ := b.seen.got(); memory > b.most {
		t.Errorf("%+v: %d bytes of host memory, not at most %d", x, memory, b.most)
	}
}

// TestStagedMany uses the maximum number of pages at once: a few for each of many links.
func TestStagedMany(t *testing.T) {
	t.Parallel()
	n := 24
	if kit.Race() || testing.Short() {
		n = 9
	}
	w := newRanks(t, n, Options{Algorithm: plan.Pairwise, StageSlot: 64 * devices.KiB, StageSlots: 16})
	d, f := counted(t, sim.New(0, sim.Params{Size: devices.GiB}))
	for _, k := range []plan.Kind{plan.AllReduce, plan.AllToAll} {
		x := plan.Task{Kind: k, Ranks: n, Count: 300_009, Type: elem.Int32}
		if k.Combines() {
			x.Op = elem.Sum
		}
		w.bounded(t, x, w.on(d), f)
	}
}

// TestStagedMemory counts the host memory and the copies of an all-reduce of 64 MiB on
// devices that the host can't access.
func TestStagedMemory(t *testing.T) {
	count := uint64(16 << 20)
	if kit.Race() || testing.Short() {
		count = 4 << 20
	}
	for name, open := range map[string]func(t *testing.T) devices.Device{
		"sim":    func(*testing.T) devices.Device { return sim.New(0, sim.Params{Size: devices.GiB}) },
		"opencl": func(t *testing.T) devices.Device { t.Helper(); return openCL(t, "opencl:0,map=off") },
	} {
		t.Run(name, func(t *testing.T) {
			d, f := counted(t, open(t))
			w := newRanks(t, 2, Options{Algorithm: plan.Ring})
			w.memoryOf(t, d, f, count)
		})
	}
}

// taken returns the size of a group's own memory: scratch and slots.
func (g *Group) taken() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, n := g.dispatcher.exec.stager.pager.slots.Pinned()
	if g.dispatcher.scratch.buffer != nil {
		n += g.dispatcher.scratch.buffer.Size()
	}
	return uint64(n)
}

func (w *ranks) memoryOf(t *testing.T, d devices.Device, f *footprint, count uint64) {
	t.Helper()
	views := make([]domain.View, 2)
	for r := range views {
		views[r] = view(t, w.on(d)(4*count), elem.Int32, 0, count)
		if err := views[r].Buffer().Store(t.Context(), 0, transport.HostSpan(sample(elem.Int32, count, uint64(r)))); err != nil {
			t.Fatal(err)
		}
	}
	err := f.during(func() error {
		return together(2, func(r int) error { return w.groups[r].AllReduce(t.Context(), views[r], views[r], elem.Sum) })
	})
	if err != nil {
		t.Fatal(err)
	}
	memory, out, in := f.got()
	slots := uint64(0)
	for _, g := range w.groups {
		slots += g.taken()
	}
	if slots > 2*8<<20 || memory > slots {
		t.Errorf("%d bytes were taken, and %d of host memory copied", slots, memory)
	}
	// Each rank copies all of its elements out once, and combined elements once more if
	// they were evicted; it copies all of them in once, and evicted ones again. On a busy
	// machine some pages copied out ahead are evicted before their use.
	whole := 2 * 4 * count
	if out < whole || out > 2*whole || in < whole || in > whole+whole/2 {
		t.Errorf("%d bytes out and %d in, of %d", out, in, whole)
	}
	t.Logf("%d bytes taken; %d out, %d in, of %d", slots, out, in, whole)
	want := make([]byte, 4*count)
	_ = elem.Combine(elem.Sum, elem.Int32, want, sample(elem.Int32, count, 0), sample(elem.Int32, count, 1))
	for r := range views {
		if err := w.right(&plan.Task{Type: elem.Int32}, r, views[r], want); err != nil {
			t.Error(err)
		}
	}
}

// order makes some copies of a device wait for others.
type order struct {
	ended   <-chan struct{}
	on      atomic.Bool
	outs    atomic.Int64
	ins     atomic.Int64
	loaded  chan struct{}
	stored  chan struct{}
	waiting atomic.Int64
}

func (o *order) hook(op faulty.Op) error {
	if !o.on.Load() {
		return nil
	}
	switch op.Kind {
	case faulty.CopyOut:
		switch o.outs.Add(1) {
		case 6:
			// The exchange continues during this wait, and its results are stored.
			return o.wait(o.stored)
		case 8:
			close(o.loaded)
		}
	case faulty.CopyIn:
		switch o.ins.Add(1) {
		case 1:
			close(o.stored)
		case 2:
			return o.wait(o.loaded)
		}
	default:
	}
	return nil
}

func (o *order) wait(c <-chan struct{}) error {
	o.waiting.Add(1)
	select {
	case <-c:
		return nil
	case <-o.ended:
		return errors.New("what a copy was to wait for did not happen")
	}
}

// TestStagedOverlap delays a copy until another event, which happens only if it does not
// depend on that copy: a copy from the device is delayed until one to the device has ended,
// which requires an exchange; a copy to the device is delayed until two more from it have
// started.
func TestStagedOverlap(t *testing.T) {
	const count = 1 << 20
	o := &order{ended: kit.Context(t, time.Minute).Done(), loaded: make(chan struct{}), stored: make(chan struct{})}
	d := faulty.Wrap(sim.New(0, sim.Params{Size: devices.GiB}), o.hook)
	t.Cleanup(func() { _ = d.Close() })
	w := newRanks(t, 2, Options{Algorithm: plan.Ring, StageSlot: 64 * devices.KiB, StageSlots: 16})
	x := plan.Task{Kind: plan.AllReduce, Count: count, Type: elem.Int32, Op: elem.Sum}
	want, err := w.outcome(x, w.buffer, just)
	if err != nil {
		t.Fatal(err)
	}
	turn, alloc := 0, w.on(d)
	got, err := w.outcome(x, func(n uint64) *region.Buffer {
		// Rank 0 is on the device, rank 1 is not.
		if turn++; turn <= 2 {
			return alloc(n)
		}
		return w.buffer(n)
	}, func(call func() error) error {
		o.on.Store(true)
		defer o.on.Store(false)
		return call()
	})
	if err != nil || !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
		t.Errorf("%v, or other bits", err)
	}
	if o.waiting.Load() != 2 {
		t.Errorf("%d copies have waited", o.waiting.Load())
	}
}

// TestStagedAndNot: one rank on a device and one in host memory make calls large enough to
// settle.
func TestStagedAndNot(t *testing.T) {
	const count = (4<<20)/4 + 3
	core, told := observer.New(zap.WarnLevel)
	w := newRanks(t, 2, Options{Timeout: 20 * time.Second, Stuck: time.Minute, Logger: zap.New(core)})
	d := sim.New(0, sim.Params{Size: devices.GiB})
	t.Cleanup(func() { _ = d.Close() })
	turn, alloc := 0, w.on(d)
	for _, inPlace := range []bool{true, false, true} {
		x := plan.Task{Kind: plan.AllReduce, Count: count, Type: elem.Int32, Op: elem.Sum, InPlace: inPlace}
		if err := w.try(trial{task: x}, func(n uint64) *region.Buffer {
			if turn++; turn%2 == 0 {
				return alloc(n)
			}
			return w.buffer(n)
		}, 1); err != nil {
			t.Error(err)
		}
	}
	for _, e := range told.All() {
		t.Errorf("a rank has waited in vain: %s, %v", e.Message, e.ContextMap())
	}
}

// TestStagedRetry cuts a link in the middle of a call on device memory: the call is
// repeated, and gives the same bits, even if the source has been overwritten.
func TestStagedRetry(t *testing.T) {
	const n, count = 3, (4<<20)/4 + 1
	for name, room := range map[string]devices.Size{"kept on the device": devices.GiB, "kept on the host": 34 * devices.MiB} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			w, faults := newFaulty(t, n, Options{Algorithm: plan.Ring, KeepSource: true, StageSlot: 64 * devices.KiB, StageSlots: 16})
			x := plan.Task{Kind: plan.AllReduce, Count: count, Type: elem.Float32, Op: elem.Sum}
			want, err := w.outcome(x, w.buffer, just)
			if err != nil {
				t.Fatal(err)
			}
			d := sim.New(0, sim.Params{Size: room})
			t.Cleanup(func() { _ = d.Close() })
			alloc := w.reused(w.on(d), 2*n)
			for _, at := range []uint64{17, 500_000, 5_000_000} {
				for _, x.InPlace = range []bool{false, true} {
					faults.CutAfter(0, 1, at)
					if err := w.sameAgain(x, alloc, want); err != nil {
						t.Fatalf("cut at byte %d, in place %v: %v", at, x.InPlace, err)
					}
				}
			}
			if u, err := d.Usage(); err != nil || u.Used > 2*n*(4*count+4096) {
				t.Errorf("%v of the device are used: %v", u.Used, err)
			}
		})
	}
}

// sameAgain executes a task that must be repeated, and compares the bits.
func (w *ranks) sameAgain(x plan.Task, alloc allocate, want [][]byte) error {
	var tries atomic.Int64
	for _, g := range w.groups {
		g.opts.Observe = func(r *Report) { tries.Add(int64(r.Retries)) }
	}
	got, err := w.outcome(x, alloc, just)
	if err != nil {
		return err
	}
	if n := tries.Load(); n != int64(len(w.groups)) {
		return fmt.Errorf("tried again %d times", n)
	}
	for r := range got {
		if !bytes.Equal(got[r], want[r]) {
			return fmt.Errorf("other bits of rank %d", r)
		}
	}
	return nil
}

// reused returns the same buffers in turn.
func (w *ranks) reused(alloc allocate, n int) allocate {
	var all []*region.Buffer
	turn := 0
	return func(size uint64) *region.Buffer {
		if len(all) < n {
			all = append(all, alloc(size))
		}
		turn++
		return all[(turn-1)%n]
	}
}
