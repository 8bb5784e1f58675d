package sim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
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
		"pinned":   "sim:4,size=64MiB,pinned=true",
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
		"sim:0,latency=fast":               "not a duration",
		"sim:0,speed=1GB/s":                `no parameter "speed"`,
		"sim:0,mapped=maybe":               "not true or false",
		"sim:0,mapped=true,pinned=true":    "omit one of the two",
		"sim:0,size=1MiB,maxalloc=2MiB":    "more than the size",
		"sim:0,latency=-1s,bandwidth=much": "; ",
	} {
		if _, err := reg.Open(context.Background(), text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
}

// crash crashes a device of any kind.
func crash(dev devices.Device) { dev.(interface{ Crash() }).Crash() } //nolint:errcheck // it has the method

func TestEpochsDiffer(t *testing.T) {
	seen := map[devices.Epoch]bool{}
	for range 100 {
		dev := open(t, "sim:0,size=1MiB")
		for range 3 {
			if seen[dev.Epoch()] {
				t.Fatalf("epoch %d twice", dev.Epoch())
			}
			seen[dev.Epoch()] = true
			crash(dev)
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
	crash(dev)
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
	// No memory is counted as used, and the count stays right when lost memory is released.
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

// TestCrashUnderLoad crashes and releases during copies. Nothing may fault, and no block
// may remain at the end.
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
		crash(dev)
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

// takes checks that f is not faster than the model. How close it comes depends on the
// machine.
func takes(t *testing.T, what string, want time.Duration, f func()) {
	t.Helper()
	for range 3 {
		got := timed(f)
		if got < want*99/100-creditLimit {
			t.Errorf("%s took %v, the model says %v", what, got, want)
		}
		t.Logf("%s: %v, modelled %v", what, got, want)
	}
}

// repeat returns a function that calls f n times.
func repeat(t *testing.T, n int, f func() error) func() {
	t.Helper()
	return func() {
		for range n {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	}
}

// together returns a function that runs both at the same time.
func together(f, g func()) func() {
	return func() {
		var wg sync.WaitGroup
		wg.Go(f)
		wg.Go(g)
		wg.Wait()
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
	rest, err := mem.Span(devices.Range{Off: devices.Offset(devices.MiB), Len: devices.MiB})
	if err != nil {
		t.Fatal(err)
	}
	other := make([]byte, devices.MiB)
	in := repeat(t, chunks, func() error { return dev.CopyIn(ctx, part, buf) })
	in2 := repeat(t, chunks, func() error { return dev.CopyIn(ctx, rest, buf) })
	out := repeat(t, chunks, func() error { return dev.CopyOut(ctx, buf, part) })
	inside := repeat(t, chunks, func() error { return dev.Copy(ctx, part, part) })
	perMiB := time.Duration(float64(devices.MiB) / 1e9 * 1e9)
	const latency = 100 * time.Microsecond
	takes(t, "H2D", chunks*(perMiB+latency), in)
	takes(t, "D2H", chunks*(perMiB+latency), out)
	takes(t, "D2D", chunks*(perMiB/2+latency), inside)
	takes(t, "two H2D", 2*chunks*perMiB, together(in, in2))
	takes(t, "H2D in one piece", 4*perMiB+latency, repeat(t, 1, func() error {
		return dev.CopyIn(ctx, whole, big)
	}))
	// H2D beside D2H: on other spans, to avoid a race.
	out2 := repeat(t, chunks, func() error { return dev.CopyOut(ctx, other, rest) })
	takes(t, "H2D beside D2H", chunks*(perMiB+latency), together(in, out2))
}

func TestCancelWhileWaiting(t *testing.T) {
	dev := open(t, "sim:0,size=8MiB,bandwidth=10kB/s") // it would take minutes
	mem, err := dev.Alloc(t.Context(), 8*devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Release() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err = dev.CopyIn(ctx, mem.All(), make([]byte, 8*devices.MiB)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
