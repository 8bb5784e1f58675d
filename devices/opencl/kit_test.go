package opencl

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// require skips the test for a reason, or fails it if HMCFS_REQUIRE says that OpenCL must
// be available.
func require(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for want := range strings.SplitSeq(os.Getenv("HMCFS_REQUIRE"), ",") {
		if want == "opencl" || want == "all" {
			t.Fatalf("HMCFS_REQUIRE: no %s: %v", what, err)
		}
	}
	t.Skipf("no %s: %v", what, err)
}

func parse(t testing.TB, text string) devices.Spec {
	t.Helper()
	spec, err := devices.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// open opens the first device with the parameters and closes it at the end of the test.
func open(t testing.TB, params string) devices.Device {
	t.Helper()
	d := NewDriver(Options{})
	_, err := d.Discover(context.Background())
	require(t, "OpenCL device", err)
	dev, err := d.Open(context.Background(), parse(t, "opencl:0,"+params))
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

// openMapped opens the first device and skips if it can't map.
func openMapped(t testing.TB, params string) *mappedDevice {
	t.Helper()
	dev, ok := open(t, params).(*mappedDevice)
	if !ok {
		t.Skip("the device does not share the host's memory")
	}
	return dev
}

// openShared opens the first device as if it were a GPU in the host's memory.
func openShared(t testing.TB, params string) *mappedDevice {
	t.Helper()
	dev := openMapped(t, params)
	dev.entry.kind = clDeviceTypeGPU
	return dev
}

// openDiscrete opens the first device as if its memory were its own.
func openDiscrete(t testing.TB, params string) *device {
	t.Helper()
	dev := core(open(t, params+",map=off"))
	dev.entry.unified = false
	return dev
}

// openers opens each kind of device that the first one can be.
func openers(params string) map[string]func(testing.TB) devices.Device {
	return map[string]func(testing.TB) devices.Device{
		"map=auto": func(t testing.TB) devices.Device { t.Helper(); return open(t, params) },
		"map=off":  func(t testing.TB) devices.Device { t.Helper(); return open(t, params+",map=off") },
		"shared":   func(t testing.TB) devices.Device { t.Helper(); return openShared(t, params) },
		"discrete": func(t testing.TB) devices.Device { t.Helper(); return openDiscrete(t, params) },
	}
}

// core returns the device inside of a mapping one.
func core(dev devices.Device) *device {
	switch d := dev.(type) {
	case *mappedDevice:
		return d.device
	case *device:
		return d
	}
	panic("not a device of this package")
}

// left counts the resources that a device has not freed yet.
type left struct {
	used    devices.Size
	buffers int
	done    bool // the context and the queues are released
}

func leftOf(dev devices.Device) left {
	d := core(dev)
	d.mu.Lock()
	defer d.mu.Unlock()
	return left{used: d.used, buffers: len(d.buffers), done: d.done}
}

// isMapped reports whether the buffer is mapped.
func isMapped(b *buffer) bool {
	b.mapMu.Lock()
	defer b.mapMu.Unlock()
	return b.addr != 0
}

// kinds runs a test on each kind of device that the first one can be, of 1 GiB.
func kinds(t *testing.T, fn func(t *testing.T, dev devices.Device)) {
	t.Helper()
	kindsOf(t, "size=1GiB", fn)
}

// kindsOf is kinds with other parameters.
func kindsOf(t *testing.T, params string, fn func(t *testing.T, dev devices.Device)) {
	t.Helper()
	for name, opener := range openers(params) {
		t.Run(name, func(t *testing.T) { fn(t, opener(t)) })
	}
}

// noise returns n random bytes, the same for the same seed.
func noise(n int, seed uint64) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(p)
	return p
}

// alloc allocates memory and releases it at the end of the test.
func alloc(t testing.TB, dev devices.Device, n devices.Size) *devices.Memory {
	t.Helper()
	mem, err := dev.Alloc(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// part returns a span of a memory.
func part(t testing.TB, mem *devices.Memory, off, n int) devices.Span {
	t.Helper()
	s, err := mem.Span(devices.Range{Off: devices.Offset(off), Len: devices.Size(n)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes p to the memory.
func put(t testing.TB, mem *devices.Memory, p []byte) {
	t.Helper()
	if err := mem.Device().CopyIn(t.Context(), part(t, mem, 0, len(p)), p); err != nil {
		t.Fatal(err)
	}
}

// get reads the whole memory.
func get(t testing.TB, mem *devices.Memory) []byte {
	t.Helper()
	p := make([]byte, mem.Size())
	getInto(t, p, mem)
	return p
}

// getInto reads the whole memory into p, which large tests reuse: populating new pages
// takes longer than the copy.
func getInto(t testing.TB, p []byte, mem *devices.Memory) {
	t.Helper()
	if err := mem.Device().CopyOut(t.Context(), p, mem.All()); err != nil {
		t.Fatal(err)
	}
}
