package collective

import (
	"bytes"
	"context"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

const (
	gradient = 16 << 10 // bytes
	slowly   = 256 << 10
)

// trainer is the work of a rank: its compute stream makes a gradient, the group sums those
// of all ranks, and its communication stream copies the sum away.
type trainer struct {
	t     testing.TB
	group *Group
	// compute makes grad from fresh, after a copy that takes a while; comm copies sum to
	// taken.
	compute, comm               devices.Stream
	fresh, grad, sum, taken     *devices.Memory
	slow                        [2]*devices.Memory
	gradBuffer, sumBuffer       *region.Buffer
	hastyCompute, hastyTransfer bool
}

// hasty is an event whose Wait does not wait.
type hasty struct{ devices.Event }

// Wait returns at once.
func (hasty) Wait(context.Context) error { return nil }

func newTrainer(t *testing.T, w *ranks, rank int, d devices.Device) *trainer {
	t.Helper()
	tr := &trainer{t: t, group: w.groups[rank]}
	for at, n := range map[**devices.Memory]devices.Size{
		&tr.fresh: gradient, &tr.grad: gradient, &tr.sum: gradient, &tr.taken: gradient,
		&tr.slow[0]: slowly, &tr.slow[1]: slowly,
	} {
		m, err := d.Alloc(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		*at = m
		t.Cleanup(func() { _ = m.Release() })
	}
	for at, m := range map[**region.Buffer]*devices.Memory{&tr.gradBuffer: tr.grad, &tr.sumBuffer: tr.sum} {
		b, err := w.table.RegisterDevice(m.All())
		if err != nil {
			t.Fatal(err)
		}
		*at = b
		w.owns(b)
	}
	for _, s := range []*devices.Stream{&tr.compute, &tr.comm} {
		made, err := devices.NewStream(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		*s = made
		t.Cleanup(func() { _ = made.Close() })
	}
	return tr
}

// contribution returns what a rank adds in a round.
func contribution(rank, round int) []byte {
	return kit.Bytes(uint64(rank)<<32|uint64(round), 0, gradient)
}

// round makes one step and returns the sum that the communication stream copied.
func (tr *trainer) round(ctx context.Context, round int) ([]byte, error) {
	device := tr.fresh.Device()
	if err := device.CopyIn(ctx, tr.fresh.All(), contribution(int(tr.group.Rank()), round)); err != nil {
		return nil, err
	}
	begin, done := devices.NewSignal(), devices.NewSignal()
	for _, ask := range []func() error{
		func() error { return tr.compute.After(begin) },
		func() error { return tr.compute.Copy(tr.slow[0].All(), tr.slow[1].All()) },
		func() error { return tr.compute.Copy(tr.grad.All(), tr.fresh.All()) },
		func() error {
			if tr.hastyTransfer {
				return nil
			}
			return tr.comm.After(done)
		},
		func() error { return tr.comm.Copy(tr.taken.All(), tr.sum.All()) },
	} {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	ready, err := tr.compute.Record()
	if err != nil {
		return nil, err
	}
	if tr.hastyTransfer {
		if err = tr.comm.Sync(ctx); err != nil {
			return nil, err
		}
	}
	c := &Call{
		Kind: plan.AllReduce, Source: view(tr.t, tr.gradBuffer, elem.Int32, 0, gradient/4),
		Result: view(tr.t, tr.sumBuffer, elem.Int32, 0, gradient/4), Op: elem.Sum, After: ready, Done: done,
	}
	if tr.hastyCompute {
		c.After = hasty{ready}
	} else {
		begin.Set(nil)
	}
	if err = tr.group.Do(ctx, c); err != nil {
		return nil, err
	}
	begin.Set(nil)
	if err = tr.comm.Sync(ctx); err != nil {
		return nil, err
	}
	if err = tr.compute.Sync(ctx); err != nil {
		return nil, err
	}
	got := make([]byte, gradient)
	return got, device.CopyOut(ctx, got, tr.taken.All())
}

// stale makes some steps with two ranks and returns the number of steps in which a rank saw
// bytes other than the sum of that step.
func stale(t *testing.T, d devices.Device, steps int, change func(*trainer)) (wrong int) {
	t.Helper()
	w := newRanks(t, 2, Options{Check: CheckOff})
	trainers := []*trainer{newTrainer(t, w, 0, d), newTrainer(t, w, 1, d)}
	for _, tr := range trainers {
		change(tr)
	}
	for round := 1; round <= steps; round++ {
		want := contribution(0, round)
		if err := elem.Combine(elem.Sum, elem.Int32, want, want, contribution(1, round)); err != nil {
			t.Fatal(err)
		}
		right := make([]bool, len(trainers))
		err := together(len(trainers), func(r int) error {
			got, err := trainers[r].round(t.Context(), round)
			right[r] = bytes.Equal(got, want)
			return err
		})
		if err != nil {
			t.Fatalf("step %d: %v", round, err)
		}
		if !right[0] || !right[1] {
			wrong++
		}
	}
	return wrong
}

// TestEvents makes a collective wait for the stream that produces its source, and the
// stream that consumes its result wait for the collective: no rank ever sees old bytes.
// Without one of the waits some rank does.
func TestEvents(t *testing.T) {
	steps := 1000
	if testing.Short() || kit.Race() {
		steps = 100
	}
	for name, open := range map[string]func(t *testing.T) devices.Device{
		"sim": func(*testing.T) devices.Device {
			return sim.New(0, sim.Params{Size: devices.GiB, CopyBandwidth: 4 * devices.GiB})
		},
		"opencl shared":   func(t *testing.T) devices.Device { t.Helper(); return openCL(t, "opencl:0") },
		"opencl commands": func(t *testing.T) devices.Device { t.Helper(); return openCL(t, "opencl:0,map=off") },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			t.Cleanup(func() { _ = d.Close() })
			if wrong := stale(t, d, steps, func(*trainer) {}); wrong != 0 {
				t.Errorf("old bytes in %d of %d steps", wrong, steps)
			}
			if wrong := stale(t, d, 3, func(tr *trainer) { tr.hastyCompute = true }); wrong == 0 {
				t.Error("nothing is missed without the wait for the compute stream")
			}
			if wrong := stale(t, d, 3, func(tr *trainer) { tr.hastyTransfer = true }); wrong == 0 {
				t.Error("nothing is missed without the wait for the collective")
			}
		})
	}
}

func openCL(t *testing.T, text string) devices.Device {
	t.Helper()
	kit.Require(t, "opencl")
	return devicetest.Open(t, opencl.NewDriver(opencl.Options{}), text)
}

// TestEventFails: if the work before a call fails, the call does not begin, and work that
// waits for the call fails too.
func TestEventFails(t *testing.T) {
	w := newRanks(t, 1, Options{})
	b := w.buffer(64)
	before, done := devices.NewSignal(), devices.NewSignal()
	before.Set(context.DeadlineExceeded)
	v := view(t, b, elem.Int32, 0, 16)
	c := &Call{Kind: plan.AllReduce, Source: v, Result: v, Op: elem.Sum, After: before, Done: done}
	if err := w.groups[0].Do(t.Context(), c); err == nil {
		t.Error("the call was made")
	}
	if done.Wait(t.Context()) == nil {
		t.Error("the result is said to be whole")
	}
}
