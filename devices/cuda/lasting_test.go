package cuda

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// lastingOf makes memory behind a descriptor, which is closed with the test.
func lastingOf(t *testing.T, d *device, n devices.Size) *os.File {
	t.Helper()
	f, err := d.MakeLasting(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return f
}

// usageOf returns the usage of a device, for comparisons.
func usageOf(t *testing.T, d *device) devices.Usage {
	t.Helper()
	u, err := d.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestNothingLasts opens cards whose driver makes no descriptors, or that are smaller than their unit.
func TestNothingLasts(t *testing.T) {
	for setting, spec := range map[string]string{"vmm=0": "cuda:0", "shared=8388608": "cuda:0,size=7MiB"} {
		d := open(t, newStandIn(t, setting).driver(), spec)
		_, makeErr := d.MakeLasting(t.Context(), 1)
		_, allocErr := d.AllocIn(t.Context(), os.Stdin, 1)
		for what, err := range map[string]error{"make": makeErr, "alloc": allocErr, "resume": d.Resume(1)} {
			if !errors.Is(err, devices.ErrUnsupported) {
				t.Errorf("%s, %s: %v", setting, what, err)
			}
		}
		if _, ok := devices.LastingMakerOf(d); ok {
			t.Errorf("%s: it makes memory that lasts", setting)
		}
	}
}

// TestDescriptorHasMemory checks that the descriptor alone has the memory, which all count as used.
func TestDescriptorHasMemory(t *testing.T) {
	d := open(t, newStandIn(t, "shared=8388608").driver(), "cuda:0")
	const n, whole = 9 * devices.MiB, 16 * devices.MiB
	before := usageOf(t, d)
	f := lastingOf(t, d, n)
	if u := usageOf(t, d); u.Used != before.Used || u.Free != min(before.Free, 256*devices.MiB-whole) {
		t.Errorf("usage %+v, before %+v", u, before)
	}
	for range 2 {
		mem, err := d.AllocIn(t.Context(), f, n)
		if err != nil {
			t.Fatal(err)
		}
		if u := usageOf(t, d); u.Used != whole || mem.Size() != n {
			t.Errorf("%v of %+v", mem.Size(), u)
		}
		put(t, mem.All(), 5)
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	}
	mem, err := d.AllocIn(t.Context(), f, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	holds(t, mem.All(), 5, 0)
	if err := mem.Release(); err != nil {
		t.Error(err)
	}
	if u := usageOf(t, d); u != before {
		t.Errorf("usage %+v, before %+v", u, before)
	}
}

// TestLastingFails has each call of the driver fail: only memory that the driver refuses is an
// ErrHandle, and nothing is left.
func TestLastingFails(t *testing.T) {
	lib := newStandIn(t)
	d, other := open(t, lib.driver(), "cuda:0"), open(t, lib.driver(), "cuda:1")
	before := usageOf(t, d)
	for call, code := range map[string]Code{"cuMemCreate": 2, "cuMemExportToShareableHandle": 801} {
		lib.set(fmt.Sprintf("fail=%s:0:%d", call, code))
		f, err := d.MakeLasting(t.Context(), 3<<20)
		if f != nil || codeOf(err) != code || errors.Is(err, devices.ErrOutOfMemory) != (code == codeOutOfMemory) {
			t.Errorf("%s: %v", call, err)
		}
		if u := usageOf(t, d); u != before {
			t.Errorf("%s: usage %+v, before %+v", call, u, before)
		}
	}
	lib.set()
	f := lastingOf(t, d, 3<<20)
	before = usageOf(t, d)
	for _, call := range []string{
		"cuMemImportFromShareableHandle", "cuMemGetAllocationPropertiesFromHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
	} {
		for _, code := range []Code{1, codeOutOfMemory, codeOperatingSystem} {
			lib.set(fmt.Sprintf("fail=%s:0:%d", call, code))
			mem, err := d.AllocIn(t.Context(), f, 3<<20)
			if mem != nil || codeOf(err) != code || errors.Is(err, devices.ErrHandle) == (code == codeOutOfMemory) {
				t.Errorf("%s: %v", call, err)
			}
			if u := usageOf(t, d); u != before {
				t.Errorf("%s: usage %+v, before %+v", call, u, before)
			}
		}
	}
	lib.set()
	if _, err := other.AllocIn(t.Context(), f, 3<<20); !errors.Is(err, devices.ErrHandle) {
		t.Errorf("memory of another card: %v", err)
	}
	if _, err := d.AllocIn(t.Context(), f, 8<<20); !errors.Is(err, devices.ErrHandle) {
		t.Errorf("more than there is: %v", err)
	}
	mem, err := d.AllocIn(t.Context(), f, 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.Release(); err != nil {
		t.Error(err)
	}
}

// TestNoResumeAfterFailure does not go back to an epoch before the failure of a card.
func TestNoResumeAfterFailure(t *testing.T) {
	lib := newStandIn(t)
	d := open(t, lib.driver(), "cuda:0")
	first := d.Epoch()
	if err := d.Resume(first - 5); err != nil || d.Epoch() != first-5 {
		t.Errorf("epoch %d, %v", d.Epoch(), err)
	}
	mem := alloc(t, d, 100)
	lib.set("fail=cuMemcpyDtoHAsync_v2:0:700")
	if err := d.CopyOut(t.Context(), make([]byte, 100), mem.All()); codeOf(err) != codeIllegalAddress {
		t.Fatal(err)
	}
	failed := d.Epoch()
	if err := d.Resume(first); !errors.Is(err, devices.ErrDevice) || d.Epoch() != failed {
		t.Errorf("epoch %d, %v", d.Epoch(), err)
	}
}
