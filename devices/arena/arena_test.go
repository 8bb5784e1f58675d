package arena

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

func TestOptions(t *testing.T) {
	info := func(total, maxAlloc devices.Size) devices.Info {
		return devices.Info{Name: "fake0", Total: total, MaxAlloc: maxAlloc}
	}
	tests := []struct {
		name string
		in   Options
		info devices.Info
		slab devices.Size
		ok   bool
	}{
		{"small device", Options{}, info(8*devices.MiB, 0), devices.MiB, true},
		{"middle device", Options{}, info(256*devices.MiB, 0), 16 * devices.MiB, true},
		{"large device", Options{}, info(31*devices.GiB, 0), 64 * devices.MiB, true},
		{"larger device", Options{}, info(32*devices.GiB, 0), 128 * devices.MiB, true},
		{"largest device", Options{}, info(devices.TiB, 0), 256 * devices.MiB, true},
		{"tiny device", Options{}, info(10000, 0), 8192, true},
		{"small allocations", Options{}, info(devices.GiB, 100000), 98304, true},
		{"rounded up", Options{SlabSize: 5000}, info(devices.GiB, 0), 8192, true},
		{"huge slab", Options{SlabSize: ^devices.Size(0)}, info(devices.GiB, 0), devices.GiB, true},
		{"large pages", Options{PageSize: 2 * devices.MiB}, info(32*devices.MiB, 0), 2 * devices.MiB, true},
		{"odd page", Options{PageSize: 5000}, info(devices.GiB, 0), 0, false},
		{"huge page", Options{PageSize: devices.TiB}, info(4*devices.TiB, 0), 0, false},
		{"no room for a page", Options{}, info(4095, 0), 0, false},
		{"no allocation of a page", Options{}, info(devices.GiB, 512), 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.in.withDefaults(tt.info, 0)
			if (err == nil) != tt.ok {
				t.Fatalf("error %v, want ok %v", err, tt.ok)
			}
			if tt.ok && got.SlabSize != tt.slab {
				t.Errorf("slab size %d, want %d", got.SlabSize, tt.slab)
			}
		})
	}
}

func TestLeasesArePages(t *testing.T) {
	a := newArena(t, newFake(64*devices.MiB, 0), Options{})
	for _, n := range []devices.Size{1, 4095, 4096, 4097, 100000, 5 * devices.MiB} {
		l := mustAlloc(t, a, n)
		if l.Span.Len != roundUp(n, 4096) || l.Span.Off%4096 != 0 {
			t.Errorf("%d bytes became %v", n, l.Span.Range)
		}
		if l.Slab == 0 || l.Span.Mem == nil || l.Span.Check(a.Device()) != nil {
			t.Errorf("%d bytes: unusable lease %+v", n, l)
		}
		back, err := a.Resolve(l.Slab, l.Span.Range)
		if err != nil || back != l {
			t.Errorf("resolved to %+v, %v; want %+v", back, err, l)
		}
	}
}

func TestBadRequests(t *testing.T) {
	ctx := context.Background()
	a := newArena(t, newFake(8*devices.MiB, 0), Options{})
	for _, r := range [][2]devices.Size{{0, 0}, {5, 0}, {1, 2}} {
		if _, err := a.AllocSome(ctx, r[0], r[1]); !errors.Is(err, devices.ErrRange) {
			t.Errorf("AllocSome(%d, %d) = %v", r[0], r[1], err)
		}
	}
	for _, n := range []devices.Size{9 * devices.MiB, 1 << 63, ^devices.Size(0)} {
		_, err := a.Alloc(ctx, n)
		var oom *devices.OutOfMemoryError
		if !errors.As(err, &oom) || oom.Asked != n || oom.Free != 8*devices.MiB {
			t.Errorf("Alloc(%d) = %v", n, err)
		}
	}
	if l, err := a.AllocSome(ctx, ^devices.Size(0), 1); err != nil || l.Span.Len != 8*devices.MiB {
		t.Errorf("all there is: %v, %v", l.Span.Range, err)
	}
}

func TestFreeInPieces(t *testing.T) {
	a := newArena(t, newFake(64*devices.MiB, 0), Options{})
	l := mustAlloc(t, a, 10*4096)
	mustFree(t, a, part(t, l, 3, 5))
	for name, bad := range map[string]Lease{
		"twice":          part(t, l, 3, 5),
		"half free":      part(t, l, 2, 4),
		"never leased":   {Slab: l.Slab, Span: devices.Span{Mem: l.Span.Mem, Range: devices.Range{Off: 1 << 20, Len: 4096}}},
		"unknown slab":   {Slab: 77, Span: l.Span},
		"slab 0":         {Span: l.Span},
		"foreign memory": {Slab: l.Slab, Span: devices.Span{Range: l.Span.Range}},
	} {
		if err := a.Free(bad); !errors.Is(err, ErrNotLeased) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, r := range map[string]devices.Range{
		"empty":          {},
		"unaligned":      {Off: 1, Len: 4096},
		"part of a page": {Off: 0, Len: 100},
		"outside":        {Off: 0, Len: 64 * devices.MiB},
		"overflowing":    {Off: ^devices.Offset(0) &^ 4095, Len: 8192},
	} {
		bad := Lease{Slab: l.Slab, Span: devices.Span{Mem: l.Span.Mem, Range: r}}
		if err := a.Free(bad); !errors.Is(err, devices.ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := a.Usage().Leased; got != 8*4096 {
		t.Fatalf("%d bytes leased, want 8 pages", got)
	}
	mustFree(t, a, part(t, l, 0, 3))
	mustFree(t, a, part(t, l, 5, 10))
	if u := a.Usage(); u.Leased != 0 || u.Retained != u.Held {
		t.Errorf("after all is free: %+v", u)
	}
}

func TestExtend(t *testing.T) {
	a := newArena(t, newFake(8*devices.MiB, 0), Options{})
	l := mustAlloc(t, a, 4096)
	if got := a.Extend(l, 1); got != 4096 {
		t.Fatalf("extended by %d, want a page", got)
	}
	l.Span.Len += 4096
	next := mustAlloc(t, a, 4096)
	if got := a.Extend(l, 4096); got != 0 {
		t.Errorf("extended by %d over a neighbour", got)
	}
	if got := a.Extend(next, 1<<40); got != devices.MiB-3*4096 {
		t.Errorf("extended by %d, want the rest of the slab", got)
	}
	mustFree(t, a, l)
	if got := a.Extend(l, 4096); got != 0 {
		t.Errorf("extended what is not leased by %d", got)
	}
	if got := a.Extend(next, 0); got != 0 {
		t.Errorf("extended by nothing: %d", got)
	}
}

func TestCrash(t *testing.T) {
	dev := newFake(8*devices.MiB, 0)
	a := newArena(t, dev, Options{})
	old := mustAlloc(t, a, 4096)
	dev.crash()
	if err := a.Free(old); !errors.Is(err, devices.ErrLost) {
		t.Errorf("free: %v", err)
	}
	if _, err := a.Resolve(old.Slab, old.Span.Range); !errors.Is(err, devices.ErrLost) {
		t.Errorf("resolve: %v", err)
	}
	if u := a.Usage(); u.Leased != 0 || u.Slabs != 0 || u.Held != 0 {
		t.Errorf("%+v", u)
	}
	l := mustAlloc(t, a, 8*devices.MiB)
	if l.Slab == old.Slab {
		t.Error("a slab id was used twice")
	}
	if dev.inUse() != 8*devices.MiB {
		t.Errorf("device has %v in use", dev.inUse())
	}
}

func TestClose(t *testing.T) {
	dev := newFake(8*devices.MiB, 0)
	a := newArena(t, dev, Options{})
	l := mustAlloc(t, a, 4096)
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	if dev.inUse() != 0 {
		t.Errorf("%v in use after Close", dev.inUse())
	}
	_, err := a.Alloc(context.Background(), 1)
	if !errors.Is(err, devices.ErrClosed) || !errors.Is(a.Free(l), devices.ErrClosed) || a.Extend(l, 4096) != 0 {
		t.Errorf("after Close: %v, %v", err, a.Free(l))
	}
}

// TestDeviceCallBlocksNobody blocks a device's Alloc while other goroutines lease and free
// from the existing slabs.
func TestDeviceCallBlocksNobody(t *testing.T) {
	ctx := context.Background()
	dev := newFake(64*devices.MiB, 0)
	a := newArena(t, dev, Options{SlabSize: devices.MiB})
	mustAlloc(t, a, 4096)
	entered, leave := make(chan struct{}), make(chan struct{})
	dev.beforeAlloc = func(devices.Size) error {
		close(entered)
		<-leave
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := a.Alloc(ctx, 8*devices.MiB); err != nil {
			t.Error(err)
		}
	})
	<-entered
	mustFree(t, a, mustAlloc(t, a, 4096))
	if held := a.Usage().Held; held != 9*devices.MiB {
		t.Errorf("held %v while growing", held)
	}
	waiting, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := a.Alloc(waiting, 8*devices.MiB); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the device: %v", err)
	}
	close(leave)
	wg.Wait()
}

// TestGrowOnce has many goroutines need a slab at the same time: one slab serves them all.
func TestGrowOnce(t *testing.T) {
	dev := newFake(devices.GiB, 0)
	a := newArena(t, dev, Options{SlabSize: devices.MiB})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if _, err := a.Alloc(context.Background(), 4096); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if dev.allocs != 1 {
		t.Errorf("%d slabs taken for 64 pages", dev.allocs)
	}
}
