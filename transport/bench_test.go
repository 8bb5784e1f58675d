package transport_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

func memoryOn(tb testing.TB, d devices.Device, n devices.Size) devices.Span {
	tb.Helper()
	m, err := d.Alloc(context.Background(), n)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.Release() })
	if err := d.Fill(context.Background(), m.All(), 1); err != nil {
		tb.Fatal(err)
	}
	return m.All()
}

// BenchmarkStaged prints the staged pipeline's rate, that of its slower stage
// alone, and their ratio, for several chunk sizes and slots. Stages and
// pipeline take turns, so that a busy machine hits all three.
func BenchmarkStaged(b *testing.B) {
	const size = 128 * devices.MiB
	for _, chunk := range []devices.Size{128 * devices.KiB, 256 * devices.KiB, 512 * devices.KiB, devices.MiB, 2 * devices.MiB, 4 * devices.MiB} {
		for _, slots := range []int{3, 4, 6} {
			b.Run(fmt.Sprintf("chunk=%dKiB/slots=%d", chunk/devices.KiB, slots), func(b *testing.B) {
				benchStaged(b, size, transport.Options{ChunkSize: chunk, Slots: slots})
			})
		}
	}
}

func benchStaged(b *testing.B, size devices.Size, o transport.Options) {
	src, dst := benchDevices(b)
	from, to := memoryOn(b, src, size), memoryOn(b, dst, size)
	e, err := transport.New(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	ctx := context.Background()
	slot, err := e.Slots().Get(ctx, o.ChunkSize)
	if err != nil {
		b.Fatal(err)
	}
	defer slot.Release()
	var out, in, both time.Duration
	stage := func(sum *time.Duration, fn func(off devices.Offset) error) {
		start := time.Now()
		for off := devices.Size(0); off < size; off += o.ChunkSize {
			if err := fn(devices.Offset(off)); err != nil {
				b.Fatal(err)
			}
		}
		*sum += time.Since(start)
	}
	for b.Loop() {
		stage(&out, func(off devices.Offset) error {
			s, _ := from.Sub(off, o.ChunkSize)
			return src.CopyOut(ctx, slot.Bytes(), s)
		})
		stage(&in, func(off devices.Offset) error {
			s, _ := to.Sub(off, o.ChunkSize)
			return dst.CopyIn(ctx, s, slot.Bytes())
		})
		start := time.Now()
		if path, err := e.Copy(ctx, transport.DeviceSpan(to), transport.DeviceSpan(from)); err != nil || path != transport.PathStaged {
			b.Fatal(path, err)
		}
		both += time.Since(start)
	}
	rate := func(d time.Duration) float64 { return float64(size) * float64(b.N) / d.Seconds() / 1e9 }
	b.ReportMetric(rate(out), "out-GB/s")
	b.ReportMetric(rate(in), "in-GB/s")
	b.ReportMetric(rate(both), "staged-GB/s")
	b.ReportMetric(max(out, in).Seconds()/both.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

func benchDevices(testing.TB) (src, dst devices.Device) {
	a, b := newRAM("ram0"), newRAM("ram1")
	a.bandwidth, b.bandwidth = 20e9, 20e9
	return a, b
}

// BenchmarkHostCopy is what the mapped paths reach: Go's copy in 1 MiB
// pieces, device to device.
func BenchmarkHostCopy(b *testing.B) {
	const size = 256 * devices.MiB
	e, err := transport.New(transport.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	ctx := context.Background()
	from, to := memoryOn(b, newMappedRAM("ram0"), size), memoryOn(b, newMappedRAM("ram1"), size)
	host := make([]byte, devices.MiB)
	cases := map[string]func(off devices.Offset) (dst, src transport.Span){
		"mapped": func(off devices.Offset) (dst, src transport.Span) {
			d, _ := to.Sub(off, devices.MiB)
			s, _ := from.Sub(off, devices.MiB)
			return transport.DeviceSpan(d), transport.DeviceSpan(s)
		},
		"d2h": func(off devices.Offset) (dst, src transport.Span) {
			s, _ := from.Sub(off, devices.MiB)
			return transport.HostSpan(host), transport.DeviceSpan(s)
		},
		"h2d": func(off devices.Offset) (dst, src transport.Span) {
			d, _ := to.Sub(off, devices.MiB)
			return transport.DeviceSpan(d), transport.HostSpan(host)
		},
	}
	for name, spans := range cases {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(devices.MiB))
			off := devices.Offset(0)
			for b.Loop() {
				dst, src := spans(off)
				if _, err := e.Copy(ctx, dst, src); err != nil {
					b.Fatal(err)
				}
				off = (off + devices.Offset(devices.MiB)) % devices.Offset(size)
			}
		})
	}
}
