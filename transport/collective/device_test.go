package collective

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// on allocates buffers in a device's memory.
func (w *ranks) on(d devices.Device) allocate {
	return func(n uint64) *region.Buffer {
		w.t.Helper()
		m, err := d.Alloc(w.t.Context(), devices.Size(max(n, 1)))
		if err != nil {
			w.t.Fatal(err)
		}
		b, err := w.table.RegisterDevice(m.All())
		if err != nil {
			w.t.Fatal(err)
		}
		w.owns(b)
		w.t.Cleanup(func() { _ = m.Release() })
		return b
	}
}

// mixed allocates every third buffer in host memory.
func (w *ranks) mixed(alloc allocate) allocate {
	turn := 0
	return func(n uint64) *region.Buffer {
		if turn++; turn%3 == 0 {
			return w.buffer(n)
		}
		return alloc(n)
	}
}

// TestDevices uses sources and results in device memory that the host can't access, in
// memory that it can access, and in a mixture of device and host memory.
func TestDevices(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]sim.Params{"staged": {Size: devices.GiB}, "mapped": {Size: devices.GiB, Mapped: true}, "mixed": {Size: devices.GiB}} {
		for _, n := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				t.Parallel()
				d := sim.New(0, p)
				t.Cleanup(func() { _ = d.Close() })
				w := newRanks(t, n, Options{})
				alloc := w.on(d)
				if name == "mixed" {
					alloc = w.mixed(alloc)
				}
				tasks(n, []uint64{0, 1, 1000, 200_001}, func(x plan.Task) {
					if err := w.try(trial{task: x, shared: false}, alloc, x.Count); err != nil {
						t.Errorf("%+v: %v", x, err)
					}
				})
			})
		}
	}
}

// TestStagedAlgorithms runs every algorithm on device memory.
func TestStagedAlgorithms(t *testing.T) {
	t.Parallel()
	for _, a := range plan.Algorithms() {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			d := sim.New(0, sim.Params{Size: devices.GiB})
			t.Cleanup(func() { _ = d.Close() })
			w := newRanks(t, 4, Options{Algorithm: a})
			tasks(4, []uint64{5, 100_003}, func(x plan.Task) {
				if err := w.try(trial{task: x, shared: false}, w.on(d), x.Count); err != nil {
					t.Errorf("%+v: %v", x, err)
				}
			})
		})
	}
}

// TestOpenCL runs on a real device's memory.
func TestOpenCL(t *testing.T) {
	d := openCL(t, "opencl:0")
	t.Cleanup(func() { _ = d.Close() })
	w := newRanks(t, 2, Options{})
	tasks(2, []uint64{1000, 100_001}, func(x plan.Task) {
		if err := w.try(trial{task: x, shared: false}, w.on(d), x.Count); err != nil {
			t.Errorf("%+v: %v", x, err)
		}
	})
}
