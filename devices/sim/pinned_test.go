package sim

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestPinnedRefuses does with registered memory what a vendor's library would refuse, or
// never report.
func TestPinnedRefuses(t *testing.T) {
	ctx := t.Context()
	dev, ok := open(t, "sim:0,size=8MiB,pinned=true,bandwidth=1MB/s").(*PinnedDevice)
	if !ok {
		t.Fatal("not a device that registers")
	}
	host, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(host) }()
	mem, err := dev.Alloc(ctx, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Release() }()
	unpin, err := dev.PinHost(host[4096 : 512<<10])
	if err != nil {
		t.Fatal(err)
	}
	if _, err = dev.PinHost(host[:8192]); !errors.Is(err, devices.ErrDevice) {
		t.Errorf("memory registered twice: %v", err)
	}
	part, err := mem.Span(devices.Range{Len: 8192})
	if err != nil {
		t.Fatal(err)
	}
	if err = dev.CopyIn(ctx, part, host[:8192]); !errors.Is(err, devices.ErrDevice) {
		t.Errorf("copy from memory that is registered in part: %v", err)
	}
	if err = dev.CopyOut(ctx, host[508<<10:516<<10], part); !errors.Is(err, devices.ErrDevice) {
		t.Errorf("copy to memory that is registered in part: %v", err)
	}
	if err = errors.Join(dev.CopyIn(ctx, part, host[4096:12288]), dev.CopyIn(ctx, part, host[512<<10:520<<10])); err != nil {
		t.Error(err)
	}
	if n, fault := dev.Pins(); fault != nil || n.Pinned != 8192 || n.Pageable != 8192 || n.Ranges != 1 || n.Bytes != 508<<10 {
		t.Errorf("%+v, %v", n, fault)
	}
	// A copy of about 300 ms is in flight when its memory is unregistered.
	slow, err := mem.Span(devices.Range{Len: 300 << 10})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- dev.CopyIn(ctx, slow, host[4096:4096+300<<10]) }()
	kit.Eventually(t, 10*time.Second, func() bool { n, _ := dev.Pins(); return n.Pinned > 8192 })
	unpin()
	unpin()
	if err = <-done; err != nil {
		t.Error(err)
	}
	if n, fault := dev.Pins(); !errors.Is(fault, devices.ErrDevice) || n.Ranges != 0 || n.Bytes != 0 {
		t.Errorf("memory given back under a copy: %+v, %v", n, fault)
	}
	if err = dev.CopyIn(ctx, part, host[:8192]); !errors.Is(err, devices.ErrDevice) {
		t.Errorf("copy after the fault: %v", err)
	}
}
