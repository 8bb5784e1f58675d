package arena

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// TestMillionLeases shows that a lease costs no Go heap beyond its bits.
func TestMillionLeases(t *testing.T) {
	const leases = 1 << 20
	a := newArena(t, newFake(8*devices.GiB, 0), Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range leases {
		mustAlloc(t, a, 4096)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if u := a.Usage(); u.Leased != leases*4096 {
		t.Fatalf("%+v", u)
	}
	cost := float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / leases
	t.Logf("%.2f bytes of heap for each lease", cost)
	if cost > 4 {
		t.Errorf("a lease costs %.2f bytes of heap", cost)
	}
}

func TestNoGarbage(t *testing.T) {
	a := newArena(t, newFake(devices.GiB, 0), Options{})
	mustAlloc(t, a, 4096)
	if n := testing.AllocsPerRun(100, func() {
		mustFree(t, a, mustAlloc(t, a, 64*devices.KiB))
	}); n > 0 {
		t.Errorf("%v allocations for a lease and its end", n)
	}
}

// TestConcurrent leases, extends and frees in several goroutines on a device that is always
// nearly full.
func TestConcurrent(t *testing.T) {
	dev := newFake(16*devices.MiB, 0)
	a := newArena(t, dev, Options{SlabSize: 512 * devices.KiB, Retain: devices.MiB})
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var held []Lease
			for i := range rounds {
				l, err := a.AllocSome(context.Background(), devices.Size(1+(i*7919+g*31)%900000), 4096)
				if err == nil {
					l.Span.Len += a.Extend(l, 8192)
					held = append(held, l)
				}
				for len(held) > 0 && (err != nil || len(held) > 6) {
					mustFreeIn(t, a, held[0])
					held, err = held[1:], nil
				}
				if u := a.Usage(); u.Held > u.Total || u.Leased > u.Held {
					t.Errorf("%+v", u)
				}
			}
			for _, l := range held {
				mustFreeIn(t, a, l)
			}
		})
	}
	wg.Wait()
	if u := a.Usage(); u.Leased != 0 || u.Held != dev.inUse() {
		t.Errorf("%+v, device %v", u, dev.inUse())
	}
}

// mustFreeIn is mustFree for goroutines, which must not end the test.
func mustFreeIn(t *testing.T, a *Arena, l Lease) {
	t.Helper()
	if err := a.Free(l); err != nil {
		t.Error(err)
	}
}

func BenchmarkAllocFree(b *testing.B) {
	for _, bb := range []struct {
		name string
		n    devices.Size
	}{{"4KiB", 4 * devices.KiB}, {"1MiB", devices.MiB}} {
		b.Run(bb.name, func(b *testing.B) {
			a := newArena(b, newFake(devices.TiB, 0), Options{})
			for range 100000 {
				mustAlloc(b, a, 4096)
			}
			b.ReportAllocs()
			for b.Loop() {
				mustFree(b, a, mustAlloc(b, a, bb.n))
			}
		})
	}
}

// BenchmarkDust leases from a device on which every other page of 4 GiB is free.
func BenchmarkDust(b *testing.B) {
	a := newArena(b, newFake(devices.TiB, 0), Options{})
	var odd []Lease
	for i := range 1 << 20 {
		if l := mustAlloc(b, a, 4096); i%2 == 1 {
			odd = append(odd, l)
		}
	}
	for _, l := range odd {
		mustFree(b, a, l)
	}
	b.ReportAllocs()
	for b.Loop() {
		mustFree(b, a, mustAlloc(b, a, 16*devices.KiB))
	}
}
