package collective

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// BenchmarkAllReduce sums fp32 in place between goroutines.
func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{2, 4} {
		for _, way := range []string{"direct", "out", "stream"} {
			for _, size := range []devices.Size{8, 4096, 32 * devices.KiB, 64 * devices.KiB, devices.MiB, 16 * devices.MiB, 64 * devices.MiB} {
				b.Run(fmt.Sprintf("%d/%s/%d", n, way, size), func(b *testing.B) {
					benchAllReduce(b, n, size, way)
				})
			}
		}
	}
}

func benchAllReduce(b *testing.B, n int, size devices.Size, way string) {
	b.Helper()
	o := Options{}
	if way == "stream" {
		o.Algorithm = plan.Ring
	}
	w := newRanks(b, n, o)
	sources, results := make([]domain.View, n), make([]domain.View, n)
	for r := range n {
		buf := w.buffer(uint64(size))
		sources[r] = view(b, buf, elem.Float32, 0, uint64(size)/4)
		if results[r] = sources[r]; way == "out" {
			results[r] = view(b, w.buffer(uint64(size)), elem.Float32, 0, uint64(size)/4)
		}
	}
	if way != "stream" {
		err := together(n, func(r int) error {
			_, err := w.groups[r].Share(b.Context(), sources[r].Buffer())
			if err == nil && way == "out" {
				_, err = w.groups[r].Share(b.Context(), results[r].Buffer())
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	do := func(times int) {
		err := together(n, func(r int) error {
			for range times {
				if err := w.groups[r].AllReduce(b.Context(), results[r], sources[r], elem.Sum); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	do(2)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	do(b.N)
	b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds()*2*float64(n-1)/float64(n)/1e9, "busGB/s")
}

// BenchmarkBarrier measures a barrier between goroutines.
func BenchmarkBarrier(b *testing.B) {
	for _, a := range []plan.Algorithm{plan.Direct, plan.Dissemination} {
		b.Run(string(a), func(b *testing.B) {
			w := newRanks(b, 2, Options{Algorithm: a})
			b.ReportAllocs()
			err := together(2, func(r int) error {
				for range b.N {
					if err := w.groups[r].Barrier(b.Context()); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
