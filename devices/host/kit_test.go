package host

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
)

// mounted skips a test if a tmpfs can't be mounted.
func mounted(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("probe", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("needs CAP_SYS_ADMIN to mount a tmpfs: %v", err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}

// needsSharedMemory skips a test if /dev/shm is not a tmpfs.
func needsSharedMemory(t *testing.T) {
	t.Helper()
	if !isTmpfs("/dev/shm") {
		t.Skip("needs a tmpfs at /dev/shm")
	}
}

// options returns those of a tier that is removed at the end of the test.
func options(t *testing.T, mode Mode) Options {
	t.Helper()
	if mode == ModeTmpfs {
		mounted(t)
	} else {
		needsSharedMemory(t)
	}
	o := Options{Dir: t.TempDir(), NoMount: mode == ModeQuota}
	t.Cleanup(func() {
		left, err := Leftover(o)
		if err != nil {
			t.Error(err)
		}
		for _, l := range left {
			if err := l.Remove(); err != nil {
				t.Error(err)
			}
		}
	})
	return o
}

func openErr(o Options, spec string) (*Device, error) {
	dev, err := devices.NewRegistry(NewDriver(o)).Open(context.Background(), spec)
	if err != nil {
		return nil, err
	}
	d, ok := dev.(*Device)
	if !ok {
		return nil, fmt.Errorf("the host is a %T", dev)
	}
	return d, nil
}

// open opens a tier that is closed at the end of the test at the latest.
func open(t *testing.T, o Options, spec string) *Device {
	t.Helper()
	d, err := openErr(o, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// each runs a test in both modes.
func each(t *testing.T, test func(t *testing.T, mode Mode)) {
	t.Helper()
	for _, mode := range []Mode{ModeTmpfs, ModeQuota} {
		t.Run(string(mode), func(t *testing.T) { test(t, mode) })
	}
}

func write(t *testing.T, d *Device, id uint64, content []byte) {
	t.Helper()
	f, err := d.Files().Open(id, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, d *Device, id uint64, want []byte) {
	t.Helper()
	f, err := d.Files().Open(id, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(got, want); err != nil {
		t.Fatal(err)
	}
}
