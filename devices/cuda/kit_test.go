package cuda

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/standin"
)

// standIn is a private copy of a driver's stand-in library for one test.
type standIn struct {
	t    testing.TB
	path string
}

// newStandIn compiles the library, with settings such as "devices=1".
func newStandIn(t testing.TB, settings ...string) standIn {
	t.Helper()
	s := standIn{t: t, path: filepath.Join(standin.Library(t, "cuda", "libcuda.so.1"), "libcuda.so.1")}
	s.set(settings...)
	return s
}

// with returns an independent copy of the library with other settings.
func (s standIn) with(t testing.TB, settings ...string) standIn {
	t.Helper()
	text, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	other := standIn{t: t, path: filepath.Join(t.TempDir(), "libcuda.so.1")}
	if err := os.WriteFile(other.path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	other.set(settings...)
	return other
}

// set replaces the settings: faults and memory used by others can be changed at any time.
func (s standIn) set(settings ...string) {
	s.t.Helper()
	file := filepath.Join(filepath.Dir(s.path), "control")
	if err := os.WriteFile(file+".new", []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}

// withManagement adds the management library.
func (s standIn) withManagement() standIn {
	s.t.Helper()
	const name = "libnvidia-ml.so.1"
	text, err := os.ReadFile(filepath.Join(standin.Library(s.t, "nvml", name), name))
	if err == nil {
		err = os.WriteFile(s.management(), text, 0o700)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s standIn) management() string { return filepath.Join(filepath.Dir(s.path), "libnvidia-ml.so.1") }

func (s standIn) driver() *Driver {
	return NewDriver(Options{Library: s.path, Management: s.management()})
}

// open opens a device of the driver and closes it at the end of the test.
func open(t testing.TB, d *Driver, spec string) *device {
	t.Helper()
	parsed, err := devices.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := d.Open(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	dev, ok := opened.(*device)
	if !ok {
		t.Fatalf("the device is a %T", opened)
	}
	return dev
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

// put fills a span with the bytes of a seed.
func put(t testing.TB, s devices.Span, seed uint64) {
	t.Helper()
	if err := s.Mem.Device().CopyIn(t.Context(), s, kit.Bytes(seed, 0, int(s.Len))); err != nil {
		t.Fatal(err)
	}
}

// holds checks that a span contains the bytes of a seed from off on.
func holds(t testing.TB, s devices.Span, seed uint64, off int64) {
	t.Helper()
	got := make([]byte, s.Len)
	if err := s.Mem.Device().CopyOut(t.Context(), got, s); err != nil {
		t.Fatal(err)
	}
	if at := kit.DiffAt(got, seed, off); at >= 0 {
		t.Fatalf("byte %d of %d differs", at, len(got))
	}
}

// part returns a span of a memory.
func part(t testing.TB, mem *devices.Memory, off, n devices.Size) devices.Span {
	t.Helper()
	s, err := mem.Span(devices.Range{Off: devices.Offset(off), Len: n})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
