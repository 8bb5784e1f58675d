package sim_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestShare maps the descriptor: the mapping is the device's memory, in both directions,
// and its size can't be changed.
func TestShare(t *testing.T) {
	kit.Check(t)
	for _, mapped := range []bool{false, true} {
		checkShare(t, sim.New(0, sim.Params{Size: devices.MiB, Mapped: mapped}))
	}
}

func checkShare(t *testing.T, dev devices.Device) {
	t.Helper()
	const n = 256 << 10
	m, err := devices.AllocShared(t.Context(), dev, n, devices.HandleMemfd)
	if err != nil {
		t.Fatal(err)
	}
	h, err := devices.Export(t.Context(), m)
	if err != nil || h.Kind != devices.HandleMemfd || h.Size != n {
		t.Fatalf("Export: %+v, %v", h, err)
	}
	view, err := unix.Mmap(int(h.File.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.CopyIn(t.Context(), m.All(), kit.Bytes(1, 0, n)); err != nil {
		t.Fatal(err)
	}
	if i := kit.DiffAt(view, 1, 0); i >= 0 {
		t.Errorf("byte %d is not what the device has", i)
	}
	kit.FillAt(view, 2, 0)
	got := make([]byte, n)
	if err := dev.CopyOut(t.Context(), got, m.All()); err != nil || kit.DiffAt(got, 2, 0) >= 0 {
		t.Errorf("the device does not have what was stored: %v", err)
	}
	for _, length := range []int64{0, n - 1, n + 1} {
		if err := unix.Ftruncate(int(h.File.Fd()), length); !errors.Is(err, unix.EPERM) {
			t.Errorf("cut to %d: %v, want EPERM", length, err)
		}
	}
	if err := m.Release(); err != nil {
		t.Error(err)
	}
	if u, err := dev.Usage(); err != nil || u.Used != 0 {
		t.Errorf("%v in use after the release, %v", u.Used, err)
	}
	if i := kit.DiffAt(view, 2, 0); i >= 0 {
		t.Errorf("byte %d is gone for who has it mapped", i)
	}
	if err := errors.Join(unix.Munmap(view), h.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
}

func TestShareRefuses(t *testing.T) {
	kit.Check(t)
	dev := sim.New(0, sim.Params{Size: devices.MiB})
	if _, err := devices.AllocShared(t.Context(), dev, 4096, devices.HandleIPC); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("another kind: %v", err)
	}
	if _, err := devices.AllocShared(t.Context(), dev, 2*devices.MiB, devices.HandleMemfd); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("too much: %v", err)
	}
	plain, err := dev.Alloc(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = devices.Export(t.Context(), plain); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("plain memory: %v", err)
	}
	shared, err := devices.AllocShared(t.Context(), dev, 4096, devices.HandleMemfd)
	if err != nil {
		t.Fatal(err)
	}
	faulty.Simulated(dev).Crash()
	if _, err = devices.Export(t.Context(), shared); !errors.Is(err, devices.ErrLost) {
		t.Errorf("after a crash: %v", err)
	}
	if err := errors.Join(plain.Release(), shared.Release(), dev.Close()); err != nil {
		t.Error(err)
	}
}
