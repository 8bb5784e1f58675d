package arena

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// TestSmallLeaseLeavesLargeSlab makes a small lease after a large one was freed: the large
// slab is returned to the device, for other programs.
func TestSmallLeaseLeavesLargeSlab(t *testing.T) {
	dev := newFake(8*devices.GiB, 0)
	a := newArena(t, dev, Options{})
	mustFree(t, a, mustAlloc(t, a, 160*devices.MiB))
	small := mustAlloc(t, a, 10*devices.MiB)
	for range 2 {
		if err := a.Trim(); err != nil {
			t.Fatal(err)
		}
	}
	if u := a.Usage(); u.Held != 64*devices.MiB || dev.inUse() != u.Held || u.Leased != small.Span.Len {
		t.Errorf("%+v, the device has %v in use; want one slab of 64 MiB", u, dev.inUse())
	}
}

// TestSpareIsUsed leases from the spare slab that fits best, if the lease is at least half
// its size.
func TestSpareIsUsed(t *testing.T) {
	dev := newFake(8*devices.GiB, 0)
	a := newArena(t, dev, Options{Retain: 2 * devices.GiB})
	var spares []Lease
	for _, n := range []devices.Size{600, 160, 200} {
		spares = append(spares, mustAlloc(t, a, n*devices.MiB))
	}
	for _, l := range spares {
		mustFree(t, a, l)
	}
	before := dev.allocs
	for _, want := range []struct {
		n, slab devices.Size
		allocs  int
	}{
		{80, 160, 0},  // half of it
		{170, 200, 0}, // the smallest with room
		{299, 299, 1}, // less than half of what is left
		{300, 600, 1},
		{20, 600, 1}, // beside other leases: no further slab is withheld for it
	} {
		l := mustAlloc(t, a, want.n*devices.MiB)
		if got := l.Span.Mem.Size(); got != want.slab*devices.MiB || dev.allocs-before != want.allocs {
			t.Errorf("%d MiB: a slab of %v, %d calls of the device; want %d MiB and %d",
				want.n, got, dev.allocs-before, want.slab, want.allocs)
		}
	}
	if u := a.Usage(); u.Retained != 0 || u.LargestFree != 280*devices.MiB {
		t.Errorf("%+v", u)
	}
}

// TestSpareOfFullDevice leases from a spare slab of any size when the device has no more
// memory, and does not return the spare first.
func TestSpareOfFullDevice(t *testing.T) {
	dev := newFake(8*devices.GiB, 0)
	a := newArena(t, dev, Options{})
	mustFree(t, a, mustAlloc(t, a, 160*devices.MiB))
	if u := a.Usage(); u.LargestFree != 160*devices.MiB || u.Fragmentation != 0 {
		t.Errorf("%+v", u)
	}
	dev.beforeAlloc = func(devices.Size) error { return devices.ErrOutOfMemory }
	for left := 160 * devices.MiB; left > 0; left -= 16 * devices.MiB {
		mustAlloc(t, a, 16*devices.MiB)
	}
	if u := a.Usage(); u.Held != 160*devices.MiB || u.Leased != u.Held {
		t.Errorf("%+v", u)
	}
}

// TestSpareNoGarbage is TestNoGarbage for a lease with a slab of its own.
func TestSpareNoGarbage(t *testing.T) {
	a := newArena(t, newFake(devices.GiB, 0), Options{})
	mustFree(t, a, mustAlloc(t, a, 100*devices.MiB))
	if n := testing.AllocsPerRun(100, func() {
		mustFree(t, a, mustAlloc(t, a, 100*devices.MiB))
	}); n > 0 {
		t.Errorf("%v allocations for a lease and its end", n)
	}
}
