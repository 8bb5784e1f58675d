package opencl

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// BenchmarkMove moves the same bytes by plain calls and by this package, in
// one run, so that the two can be compared.
func BenchmarkMove(b *testing.B) {
	for _, n := range []devices.Size{4 * devices.KiB, devices.MiB, 16 * devices.MiB, 256 * devices.MiB} {
		host := make([]byte, n)
		raw := core(open(b, "size=1GiB,map=off"))
		rawMem := alloc(b, raw, n)
		mem := raw.buffer(rawMem.All()).mem
		run := func(name string, fn func() error) {
			b.Run(fmt.Sprintf("%v/%s", n, name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := fn(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("read/raw", func() error { return raw.api.read(raw.out, mem, 0, host) })
		for _, mode := range []string{"off", "auto"} {
			dev := open(b, "size=1GiB,map="+mode)
			span := alloc(b, dev, n).All()
			run("read/map="+mode, func() error { return dev.CopyOut(b.Context(), host, span) })
		}
		run("write/raw", func() error { return raw.api.write(raw.in, mem, 0, host) })
		for _, mode := range []string{"off", "auto"} {
			dev := open(b, "size=1GiB,map="+mode)
			span := alloc(b, dev, n).All()
			run("write/map="+mode, func() error { return dev.CopyIn(b.Context(), span, host) })
		}
	}
}

// BenchmarkCopy copies 1 GiB inside the device: by one plain call, by this
// package, and by it while somebody holds a view of the source.
func BenchmarkCopy(b *testing.B) {
	const n = devices.GiB
	run := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, mode := range []string{"off", "auto"} {
		dev := open(b, "size=2GiB,map="+mode)
		src, dst := alloc(b, dev, n), alloc(b, dev, n)
		d := core(dev)
		if mode == "off" {
			run("raw", func() error { return d.api.copy(d.within, d.place(dst.All()), d.place(src.All()), uint64(n)) })
		}
		if m, ok := dev.(*mappedDevice); ok {
			run("map=auto/by command", func() error {
				m.entry.kind = clDeviceTypeGPU
				defer func() { m.entry.kind = clDeviceTypeCPU }()
				return dev.Copy(b.Context(), dst.All(), src.All())
			})
		}
		run("map="+mode, func() error { return dev.Copy(b.Context(), dst.All(), src.All()) })
		if v, err := devices.MapHost(b.Context(), src.All(), devices.ReadOnly); err == nil {
			run("view held", func() error { return dev.Copy(b.Context(), dst.All(), src.All()) })
			v.Release()
		}
		b.Run("fill/map="+mode, func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := dev.Fill(b.Context(), dst.All(), 7); err != nil {
					b.Fatal(err)
				}
			}
		})
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
