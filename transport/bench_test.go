package transport_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
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

// BenchmarkStaged prints the staged pipeline's rate between two devices of 20
// GB/s, that of each of its stages alone, and the pipeline's ratio to the slower
// of the two, all as medians. Stages and pipeline alternate, so that other load
// affects all three.
func BenchmarkStaged(b *testing.B) {
	for _, chunk := range []devices.Size{256 * devices.KiB, 512 * devices.KiB, devices.MiB, 2 * devices.MiB, 4 * devices.MiB} {
		for _, slots := range []int{3, 4, 6} {
			b.Run(fmt.Sprintf("chunk=%dKiB/slots=%d", chunk/devices.KiB, slots), func(b *testing.B) {
				benchStaged(b, transport.Options{ChunkSize: chunk, Slots: slots})
			})
		}
	}
}

func benchStaged(b *testing.B, o transport.Options) {
	b.Helper()
	const size = 256 * devices.MiB
	p := sim.Params{Size: devices.GiB, Bandwidth: 20e9}
	src, dst := sim.New(0, p), sim.New(1, p)
	from, to := memoryOn(b, src, size), memoryOn(b, dst, size)
	e := newEngine(b, o)
	slot, err := e.Slots().Get(b.Context(), o.ChunkSize)
	if err != nil {
		b.Fatal(err)
	}
	defer slot.Release()
	stage := func(all devices.Span, copyPart func(part devices.Span) error) float64 {
		start := time.Now()
		for off := devices.Size(0); off < size; off += o.ChunkSize {
			part, subErr := all.Sub(devices.Offset(off), o.ChunkSize)
			if failed := errors.Join(subErr, copyPart(part)); failed != nil {
				b.Fatal(failed)
			}
		}
		return float64(size) / time.Since(start).Seconds() / 1e9
	}
	var outs, ins, both, ratios []float64
	for b.Loop() {
		out := stage(from, func(part devices.Span) error { return src.CopyOut(b.Context(), slot.Bytes(), part) })
		start := time.Now()
		if path, err := e.Copy(b.Context(), transport.DeviceSpan(to), transport.DeviceSpan(from)); err != nil || path != transport.PathStaged {
			b.Fatal(path, err)
		}
		staged := float64(size) / time.Since(start).Seconds() / 1e9
		in := stage(to, func(part devices.Span) error { return dst.CopyIn(b.Context(), part, slot.Bytes()) })
		outs, ins, both = append(outs, out), append(ins, in), append(both, staged)
		ratios = append(ratios, staged/min(out, in))
	}
	b.ReportMetric(median(outs), "out-GB/s")
	b.ReportMetric(median(ins), "in-GB/s")
	b.ReportMetric(median(both), "staged-GB/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkHostCopy measures the limit of the mapped paths: Go's copy in 1 MiB
// pieces, device to device.
func BenchmarkHostCopy(b *testing.B) {
	const size = 256 * devices.MiB
	e := newEngine(b, transport.Options{})
	p := sim.Params{Size: devices.GiB, Mapped: true}
	from, to := memoryOn(b, sim.New(0, p), size), memoryOn(b, sim.New(1, p), size)
	host := transport.HostSpan(make([]byte, devices.MiB))
	part := func(s devices.Span, off devices.Size) transport.Span {
		sub, err := s.Sub(devices.Offset(off), devices.MiB)
		if err != nil {
			b.Fatal(err)
		}
		return transport.DeviceSpan(sub)
	}
	for name, spans := range map[string]func(off devices.Size) (dst, src transport.Span){
		"mapped": func(off devices.Size) (dst, src transport.Span) { return part(to, off), part(from, off) },
		"d2h":    func(off devices.Size) (dst, src transport.Span) { return host, part(from, off) },
		"h2d":    func(off devices.Size) (dst, src transport.Span) { return part(to, off), host },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(devices.MiB))
			for off := devices.Size(0); b.Loop(); off = (off + devices.MiB) % size {
				dst, src := spans(off)
				if _, err := e.Copy(b.Context(), dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFileCopy is a copy inside the host tier, by the kernel.
func BenchmarkFileCopy(b *testing.B) {
	const size = 256 * devices.MiB
	e := newEngine(b, transport.Options{})
	src, dst := memFile(b), memFile(b)
	from, to := transport.FileSpan("host", src, 0, size), transport.FileSpan("host", dst, 0, size)
	if err := errors.Join(e.Fill(b.Context(), from, 1), e.Fill(b.Context(), to, 2)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := e.Copy(b.Context(), to, from); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFileDirect prints the rate between a file of the host tier and a card
// of unlimited speed, by the file's own pages and through slots, and the ratio,
// as medians. The two alternate. The pages are registered beforehand.
func BenchmarkFileDirect(b *testing.B) {
	const size = 256 * devices.MiB
	card := newPinned(b, sim.Params{})
	mem, f := memoryOn(b, card, size), memFile(b)
	own, slots := newEngine(b, transport.Options{}), newEngine(b, transport.Options{NoRegister: true})
	file, dev := transport.FileSpan("host", f, 0, size).Registrable(), transport.DeviceSpan(mem)
	rate := func(e *transport.Engine, dst, src transport.Span) float64 {
		start := time.Now()
		if _, err := e.Copy(b.Context(), dst, src); err != nil {
			b.Fatal(err)
		}
		return float64(size) / time.Since(start).Seconds() / 1e9
	}
	for name, ends := range map[string][2]transport.Span{"h2d": {dev, file}, "d2h": {file, dev}} {
		b.Run(name, func(b *testing.B) {
			rate(own, file, dev)
			var direct, staged, ratios []float64
			for b.Loop() {
				x, y := rate(own, ends[0], ends[1]), rate(slots, ends[0], ends[1])
				direct, staged, ratios = append(direct, x), append(staged, y), append(ratios, x/y)
			}
			b.ReportMetric(median(direct), "direct-GB/s")
			b.ReportMetric(median(staged), "slots-GB/s")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRegister prints the cost of registering: the rate of a first copy of a
// file that has its pages, and of one that is created by the copy.
func BenchmarkRegister(b *testing.B) {
	for name, fresh := range map[string]bool{"there": false, "fresh": true} {
		for _, register := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/register=%t", name, register), func(b *testing.B) {
				benchRegister(b, fresh, transport.Options{NoRegister: !register})
			})
		}
	}
}

func benchRegister(b *testing.B, fresh bool, o transport.Options) {
	b.Helper()
	const size = 256 * devices.MiB
	card := newPinned(b, sim.Params{})
	mem := transport.DeviceSpan(memoryOn(b, card, size))
	e := newEngine(b, o)
	f := memFile(b)
	file := transport.FileSpan("host", f, 0, size).Registrable()
	dst, src := file, mem
	if !fresh {
		dst, src = mem, file
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		b.StopTimer()
		e.Forget(transport.FileIDOf(st))
		err := f.Truncate(0)
		if err == nil && !fresh {
			err = e.Fill(b.Context(), file, 1)
		}
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err = e.Copy(b.Context(), dst, src); err != nil {
			b.Fatal(err)
		}
	}
}

// nullCard takes no time to copy, and none to register.
type nullCard struct{ *ram }

func (d *nullCard) Alloc(_ context.Context, n devices.Size) (*devices.Memory, error) {
	return devices.NewMemory(devices.MemorySpec{Device: d, Size: n, Epoch: d.Epoch(), Handle: []byte{}}), nil
}
func (d *nullCard) CopyIn(context.Context, devices.Span, []byte) error  { return nil }
func (d *nullCard) CopyOut(context.Context, []byte, devices.Span) error { return nil }
func (d *nullCard) Fill(context.Context, devices.Span, byte) error      { return nil }
func (d *nullCard) PinHost([]byte) (func(), error)                      { return func() {}, nil }

// BenchmarkDirectOverhead measures the cost of a copy by a file's own pages
// beyond the device's work: nothing is moved.
func BenchmarkDirectOverhead(b *testing.B) {
	for _, n := range []devices.Size{8 * mib, 16 * mib, 64 * mib} {
		b.Run(fmt.Sprintf("%dMiB", n/mib), func(b *testing.B) {
			d := &nullCard{newRAM("null")}
			e := newEngine(b, transport.Options{})
			f := memFile(b)
			file := transport.FileSpan("host", f, 0, n).Registrable()
			mem := memoryOn(b, d, n)
			if err := e.Fill(b.Context(), file, 1); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, err := e.Copy(b.Context(), transport.DeviceSpan(mem), file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
