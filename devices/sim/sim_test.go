package sim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/devicetest"
)

func open(t testing.TB, text string) devices.Device {
	t.Helper()
	dev, err := devices.NewRegistry(NewDriver()).Open(context.Background(), text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

func TestConformance(t *testing.T) {
	for name, spec := range map[string]string{
		"plain":    "sim:0,size=64MiB",
		"mapped":   "sim:1,size=64MiB,mapped=true",
		"maxalloc": "sim:2,size=20MiB,maxalloc=3MiB",
		"paced":    "sim:3,size=16MiB,bandwidth=10GB/s,latency=2us,copybandwidth=100GB/s",
	} {
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devices.Device { return open(t, spec) })
		})
	}
}

func TestSpec(t *testing.T) {
	dev := open(t, "sim:7,size=2MiB,maxalloc=1MiB")
	want := devices.Info{
		Name: "sim7", Family: "sim", Ordinal: 7, Model: "simulated device",
		Total: 2 * devices.MiB, MaxAlloc: devices.MiB, Align: 4096, NUMA: -1,
	}
	if dev.Info() != want {
		t.Errorf("%+v, want %+v", dev.Info(), want)
	}
	if _, able := dev.(devices.HostMapper); able {
		t.Error("a device that is not mapped has the ability")
	}
	reg := devices.NewRegistry(NewDriver())
	for text, says := range map[string]string{
		"sim:0,size=0":                     "size is 0",
		"sim:0,latency=fast":               "not a time",
		"sim:0,bandwith=1GB/s":             `no parameter "bandwith"`,
		"sim:0,mapped=maybe":               "not true or false",
		"sim:0,size=1MiB,maxalloc=2MiB":    "more than the size",
		"sim:0,latency=-1s,bandwidth=much": "; ",
	} {
		if _, err := reg.Open(context.Background(), text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
}

func TestEpochsDiffer(t *testing.T) {
	seen := map[devices.Epoch]bool{}
	for range 100 {
		dev := open(t, "sim:0,size=1MiB")
		for range 3 {
			if seen[dev.Epoch()] {
				t.Fatalf("epoch %d twice", dev.Epoch())
			}
			seen[dev.Epoch()] = true
			As(dev).Crash()
		}
	}
}

func TestCrash(t *testing.T) {
	ctx := t.Context()
	dev := open(t, "sim:0,size=1MiB,mapped=true")
	mem, err := dev.Alloc(ctx, devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	view, err := devices.MapHost(ctx, mem.All(), devices.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	before := dev.Epoch()
	As(dev).Crash()
	view.Bytes[0], view.Bytes[len(view.Bytes)-1] = 1, 2 // must not fault
	view.Release()
	view.Release()
	if dev.Epoch() == before {
		t.Error("the epoch is the same after a crash")
	}
	buf := make([]byte, devices.MiB)
	_, mapErr := devices.MapHost(ctx, mem.All(), devices.ReadOnly)
	for what, err := range map[string]error{
		"CopyIn":  dev.CopyIn(ctx, mem.All(), buf),
		"CopyOut": dev.CopyOut(ctx, buf, mem.All()),
		"Copy":    dev.Copy(ctx, mem.All(), mem.All()),
		"Fill":    dev.Fill(ctx, mem.All(), 0),
		"MapHost": mapErr,
	} {
		if !errors.Is(err, devices.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The accounting is empty, and stays right when lost memory is released.
	fresh, err := dev.Alloc(ctx, devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.Release(); err != nil {
		t.Error(err)
	}
	if u, err := dev.Usage(); err != nil || u.Used != devices.MiB {
		t.Errorf("%+v, %v", u, err)
	}
	if err := fresh.Release(); err != nil {
		t.Error(err)
	}
}

// TestCrashUnderLoad crashes and releases below running copies. Nothing may
// fault, and the books must be empty at the end.
func TestCrashUnderLoad(t *testing.T) {
	ctx := t.Context()
	dev := open(t, "sim:0,size=64MiB")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			buf, other := make([]byte, 3*devices.MiB), make([]byte, 3*devices.MiB)
			for range 60 {
				mem, err := dev.Alloc(ctx, devices.Size(2*len(buf)))
				if errors.Is(err, devices.ErrLost) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				half := devices.Size(len(buf))
				first := devices.Span{Mem: mem, Range: devices.Range{Len: half}}
				second := devices.Span{Mem: mem, Range: devices.Range{Off: devices.Offset(half), Len: half}}
				inner := make(chan error)
				go func() { inner <- dev.CopyIn(ctx, first, other) }()
				err = dev.CopyOut(ctx, buf, second)
				for _, err := range []error{err, mem.Release(), <-inner} {
					if err != nil && !errors.Is(err, devices.ErrLost) && !errors.Is(err, devices.ErrClosed) {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 50 {
		As(dev).Crash()
	}
	wg.Wait()
	if u, err := dev.Usage(); err != nil || u.Used != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

// timed runs f and returns how long it took.
func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// between checks a time; the upper bound is loose, since others may use the
// machine.
func between(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	t.Logf("%s: %v, modelled %v", what, got, want)
	if got < want*99/100 || got > want*2+20*time.Millisecond {
		t.Errorf("%s took %v, the model says %v", what, got, want)
	}
}

func TestBandwidth(t *testing.T) {
	const chunks = 32
	ctx := t.Context()
	dev := open(t, "sim:0,size=8MiB,bandwidth=1GB/s,copybandwidth=2GB/s,latency=100us")
	mem, err := dev.Alloc(ctx, 4*devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Release() }()
	buf := make([]byte, devices.MiB)
	part, err := mem.Span(devices.Range{Len: devices.MiB})
	if err != nil {
		t.Fatal(err)
	}
	whole := mem.All()
	big := make([]byte, whole.Len)
	loop := func(f func() error) func() {
		return func() {
			for range chunks {
				if err := f(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	rest, err := mem.Span(devices.Range{Off: devices.Offset(devices.MiB), Len: devices.MiB})
	if err != nil {
		t.Fatal(err)
	}
	other := make([]byte, devices.MiB)
	in := loop(func() error { return dev.CopyIn(ctx, part, buf) })
	in2 := loop(func() error { return dev.CopyIn(ctx, rest, buf) })
	out := loop(func() error { return dev.CopyOut(ctx, buf, part) })
	inside := loop(func() error { return dev.Copy(ctx, part, part) })
	both := func(f, g func()) func() {
		return func() {
			var wg sync.WaitGroup
			wg.Go(f)
			wg.Go(g)
			wg.Wait()
		}
	}
	perMiB := time.Duration(float64(devices.MiB) / 1e9 * 1e9)
	const latency = 100 * time.Microsecond
	between(t, "H2D", timed(in), chunks*(perMiB+latency))
	between(t, "D2H", timed(out), chunks*(perMiB+latency))
	between(t, "D2D", timed(inside), chunks*(perMiB/2+latency))
	between(t, "two H2D", timed(both(in, in2)), 2*chunks*perMiB)
	between(t, "H2D in one piece", timed(func() {
		if err := dev.CopyIn(ctx, whole, big); err != nil {
			t.Error(err)
		}
	}), 4*perMiB+latency)
	out2 := loop(func() error { return dev.CopyOut(ctx, other, rest) })
	between(t, "H2D beside D2H", timed(both(in, out2)), chunks*(perMiB+latency))
}

func TestCancelWhileWaiting(t *testing.T) {
	dev := open(t, "sim:0,size=8MiB,bandwidth=1MB/s")
	mem, err := dev.Alloc(t.Context(), 8*devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Release() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	took := timed(func() {
		err = dev.CopyIn(ctx, mem.All(), make([]byte, 8*devices.MiB))
	})
	if !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, spec := range []string{"sim:0", "sim:0,bandwidth=5GB/s", "sim:0,bandwidth=20GB/s"} {
		for _, n := range []devices.Size{64 * devices.KiB, devices.MiB, 16 * devices.MiB} {
			dev := open(b, spec)
			mem, err := dev.Alloc(b.Context(), n)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, n)
			b.Run(spec+"/in/"+n.String(), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := dev.CopyIn(b.Context(), mem.All(), buf); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(spec+"/out/"+n.String(), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := dev.CopyOut(b.Context(), buf, mem.All()); err != nil {
						b.Fatal(err)
					}
				}
			})
			if err := mem.Release(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
