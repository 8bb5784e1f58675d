package arena

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// TestExactlyFull leases every byte of a device whose total is not a multiple of the slab
// size.
func TestExactlyFull(t *testing.T) {
	dev := newFake(10*devices.MiB+5000, 0)
	a := newArena(t, dev, Options{SlabSize: 3 * devices.MiB})
	var n devices.Size
	for {
		l, err := a.Alloc(context.Background(), 4096)
		if err != nil {
			var oom *devices.OutOfMemoryError
			if !errors.As(err, &oom) || oom.Free != 0 || oom.Asked != 4096 {
				t.Errorf("%v", err)
			}
			break
		}
		n += l.Span.Len
	}
	if want := 10*devices.MiB + 4096; n != want || a.Usage().Leased != want || dev.inUse() > dev.info.Total {
		t.Errorf("leased %d, usage %+v, device %d; want %d", n, a.Usage(), dev.inUse(), want)
	}
}

func TestRetain(t *testing.T) {
	dev := newFake(64*devices.MiB, 0)
	a := newArena(t, dev, Options{SlabSize: devices.MiB, Retain: 2 * devices.MiB})
	var leases []Lease
	for range 5 {
		leases = append(leases, mustAlloc(t, a, devices.MiB))
	}
	for _, l := range leases {
		mustFree(t, a, l)
	}
	if u := a.Usage(); u.Retained != 2*devices.MiB || dev.inUse() != 2*devices.MiB {
		t.Errorf("kept %v, device has %v; want 2 MiB", u.Retained, dev.inUse())
	}
	before := dev.allocs
	l := mustAlloc(t, a, devices.MiB)
	if dev.allocs != before {
		t.Error("a retained slab was not used")
	}
	mustFree(t, a, l)
	// 63 MiB are only available when the retained slabs are returned.
	l = mustAlloc(t, a, 63*devices.MiB)
	if u := a.Usage(); u.Leased != 63*devices.MiB || u.Held > 64*devices.MiB {
		t.Errorf("%+v", u)
	}
	mustFree(t, a, l)
	if dev.inUse() != 0 {
		t.Errorf("a slab of 63 MiB was kept beyond Retain: %v in use", dev.inUse())
	}
}

func TestAllocSomeWhenFragmented(t *testing.T) {
	ctx := context.Background()
	a := newArena(t, newFake(4*devices.MiB, 0), Options{SlabSize: devices.MiB})
	l := mustAlloc(t, a, 1)
	rest := []Lease{l}
	for a.Usage().Leased < 4*devices.MiB {
		rest = append(rest, mustAlloc(t, a, 4096))
	}
	// Free runs of 1, 2, … 20 pages with a leased page between.
	at := 0
	for run := 1; run <= 20; run++ {
		for range run {
			mustFree(t, a, rest[at])
			at++
		}
		at++
	}
	if _, err := a.Alloc(ctx, 21*4096); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Fatalf("21 pages in one piece: %v", err)
	}
	got, err := a.AllocSome(ctx, 50*4096, 5*4096)
	if err != nil || got.Span.Len != 20*4096 {
		t.Fatalf("got %v, %v; want the run of 20 pages", got.Span.Range, err)
	}
	if _, err := a.AllocSome(ctx, 50*4096, 20*4096); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Fatalf("a second run of 20 pages: %v", err)
	}
	if f := a.Usage().Fragmentation; f <= 0.5 || f >= 1 {
		t.Errorf("fragmentation %v", f)
	}
}

// TestDeviceSaysNo uses a device that other programs use too: it provides less than its
// total.
func TestDeviceSaysNo(t *testing.T) {
	ctx := context.Background()
	dev := newFake(64*devices.MiB, 0)
	left := 5 * devices.MiB
	dev.beforeAlloc = func(n devices.Size) error {
		if n > left {
			return devices.ErrOutOfMemory
		}
		left -= n
		return nil
	}
	a := newArena(t, dev, Options{SlabSize: 4 * devices.MiB})
	mustAlloc(t, a, 4*devices.MiB)
	l, err := a.AllocSome(ctx, 3*devices.MiB, 4096)
	if err != nil || l.Span.Len < 512*devices.KiB {
		t.Fatalf("got %v, %v; want most of the last MiB", l.Span.Range, err)
	}
	_, err = a.Alloc(ctx, 2*devices.MiB)
	var oom *devices.OutOfMemoryError
	if !errors.As(err, &oom) || oom.Asked != 2*devices.MiB {
		t.Fatalf("%v", err)
	}

	broken := errors.New("broken")
	dev.beforeAlloc = func(devices.Size) error { return broken }
	if _, err := a.Alloc(ctx, 2*devices.MiB); !errors.Is(err, broken) {
		t.Fatalf("%v", err)
	}
	if u := a.Usage(); u.Held != dev.inUse() {
		t.Errorf("held %v, device has %v", u.Held, dev.inUse())
	}
}

func TestTrimLeavesWhatIsInUse(t *testing.T) {
	dev := newFake(64*devices.MiB, 0)
	a := newArena(t, dev, Options{SlabSize: devices.MiB, Retain: 64 * devices.MiB})
	kept := mustAlloc(t, a, devices.MiB)
	gone := mustAlloc(t, a, devices.MiB)
	back := mustAlloc(t, a, devices.MiB)
	for _, l := range []Lease{gone, back} {
		if err := a.Free(l); err != nil {
			t.Fatal(err)
		}
	}
	held := func() devices.Size { return a.Usage().Held }
	if err := a.Trim(); err != nil || held() != 3*devices.MiB {
		t.Fatalf("the first trim gave back: %v held, %v", held(), err)
	}
	again := mustAlloc(t, a, devices.MiB)
	if err := a.Trim(); err != nil || held() != 2*devices.MiB {
		t.Fatalf("the second trim: %v held, want the two slabs in use, %v", held(), err)
	}
	for _, l := range []Lease{kept, again} {
		if err := a.Free(l); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := a.Trim(); err != nil {
			t.Fatal(err)
		}
	}
	if u := a.Usage(); u.Held != 0 || u.Slabs != 0 || u.Retained != 0 {
		t.Errorf("after two trims without leases: %+v", u)
	}
}
