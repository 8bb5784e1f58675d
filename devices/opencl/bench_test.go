package opencl

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// contest runs plain calls and this package's in turn, so that other load on the machine
// affects both, and reports the median speeds, in MB/s, and their ratio.
func contest(b *testing.B, name string, n devices.Size, raw, ours func() error) {
	b.Helper()
	b.Run(fmt.Sprintf("%v/%s", n, name), func(b *testing.B) {
		var took [2][]time.Duration
		for b.Loop() {
			for i, fn := range []func() error{raw, ours} {
				begin := time.Now()
				if err := fn(); err != nil {
					b.Fatal(err)
				}
				took[i] = append(took[i], time.Since(begin))
			}
		}
		var speed [2]float64
		for i, t := range took {
			slices.Sort(t)
			speed[i] = float64(n) / 1e6 / t[len(t)/2].Seconds()
		}
		b.ReportMetric(speed[0], "raw-MB/s")
		b.ReportMetric(speed[1], "ours-MB/s")
		b.ReportMetric(speed[1]/speed[0], "ratio")
		b.ReportMetric(0, "ns/op")
	})
}

func BenchmarkMove(b *testing.B) {
	for _, n := range []devices.Size{4 * devices.KiB, devices.MiB, 16 * devices.MiB, 256 * devices.MiB} {
		host := noise(int(n), 1)
		raw := core(open(b, "size=1GiB,map=off"))
		mem := raw.buffer(alloc(b, raw, n).All()).mem
		for _, mode := range []string{"map=off", "map=auto"} {
			dev := open(b, "size=1GiB,"+mode)
			span := alloc(b, dev, n).All()
			contest(b, "read/"+mode, n,
				func() error { return raw.api.read(raw.out, mem, 0, host) },
				func() error { return dev.CopyOut(b.Context(), host, span) })
			contest(b, "write/"+mode, n,
				func() error { return raw.api.write(raw.in, mem, 0, host) },
				func() error { return dev.CopyIn(b.Context(), span, host) })
		}
	}
}

// BenchmarkCopy copies inside the device and compares with one plain call: by commands, by
// the host, by commands of a device that could map, and while a view of the source is held.
func BenchmarkCopy(b *testing.B) {
	const n = devices.GiB
	plain := core(open(b, "size=2GiB,map=off"))
	plainSrc, plainDst := alloc(b, plain, n).All(), alloc(b, plain, n).All()
	raw := func() error {
		return plain.api.copy(plain.within, plain.place(plainDst), plain.place(plainSrc), uint64(n))
	}
	contest(b, "map=off", n, raw, func() error { return plain.Copy(b.Context(), plainDst, plainSrc) })
	for name, open := range map[string]func(testing.TB, string) *mappedDevice{"map=auto": openMapped, "shared": openShared} {
		dev := open(b, "size=2GiB")
		src, dst := alloc(b, dev, n).All(), alloc(b, dev, n).All()
		ours := func() error { return dev.Copy(b.Context(), dst, src) }
		contest(b, name, n, raw, ours)
		v := view(b, src, devices.ReadOnly)
		contest(b, name+"/view held", n, raw, ours)
		v.Release()
	}
}

func BenchmarkMapHost(b *testing.B) {
	dev := openMapped(b, "size=1GiB")
	mem := alloc(b, dev, 64*devices.MiB)
	span := part(b, mem, 3<<20, 1<<20)
	b.Run("mapped", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v, err := dev.MapHost(b.Context(), span, devices.ReadOnly)
			if err != nil {
				b.Fatal(err)
			}
			v.Release()
		}
	})
	b.Run("mapped/parallel", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				v, err := dev.MapHost(b.Context(), span, devices.ReadOnly)
				if err != nil {
					b.Error(err)
					return
				}
				v.Release()
			}
		})
	})
	b.Run("unmapped", func(b *testing.B) {
		for b.Loop() {
			v, err := dev.MapHost(b.Context(), span, devices.ReadOnly)
			if err != nil {
				b.Fatal(err)
			}
			v.Release()
			if err := dev.unmap(dev.buffer(span)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAlloc(b *testing.B) {
	for _, mode := range []string{"off", "auto"} {
		b.Run("map="+mode, func(b *testing.B) {
			dev := open(b, "size=1GiB,map="+mode)
			b.SetBytes(int64(64 * devices.MiB))
			for b.Loop() {
				mem, err := dev.Alloc(b.Context(), 64*devices.MiB)
				if err != nil {
					b.Fatal(err)
				}
				if err := mem.Release(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
