package opencl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// fakeSystem is a machine with the given /proc/meminfo and one PCI device on
// node 1.
func fakeSystem(t *testing.T, meminfo string) system {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "bus/pci/devices/0000:65:00.0")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "numa_node"): "1\n",
		filepath.Join(root, "meminfo"):  meminfo,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return system{sys: root, proc: root}
}

func TestSystem(t *testing.T) {
	s := fakeSystem(t, "MemTotal:  1 kB\nMemAvailable:    2048 kB\n")
	if n, ok := s.available(); !ok || n != 2*devices.MiB {
		t.Errorf("available %v %v", n, ok)
	}
	if _, ok := fakeSystem(t, "").available(); ok {
		t.Error("an empty meminfo told something")
	}
	pci := pciBusInfo{Bus: 0x65}.String()
	if got := sysfs.NUMANode(s.sys, pci); got != 1 {
		t.Errorf("%s is on node %d", pci, got)
	}
	for _, unknown := range []string{"", "0000:66:00.0"} {
		if got := sysfs.NUMANode(s.sys, unknown); got != -1 {
			t.Errorf("%q is on node %d", unknown, got)
		}
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]bool{
		"OpenCL 1.1 X": false, "OpenCL 1.2 ": true, "OpenCL 3.0 CUDA": true, "OpenCL 2.1": true, "": false, "1.2": false,
	} {
		if atLeast12(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestDiscover(t *testing.T) {
	d := NewDriver(Options{})
	found, err := d.Discover(t.Context())
	require(t, "OpenCL device", err)
	again, err := d.Discover(t.Context())
	if err != nil || len(again) != len(found) {
		t.Fatalf("%d then %d devices, %v", len(found), len(again), err)
	}
	for i, f := range found {
		t.Logf("%+v", f)
		if f.Info != again[i].Info || f.Info.Total == 0 || f.Usage.Free > f.Usage.Total || f.Usage.Used != 0 {
			t.Errorf("device %d: %+v", i, f)
		}
	}
}

func TestNoLibrary(t *testing.T) {
	d := NewDriver(Options{})
	d.from = dl.Library{Names: []string{"libOpenCL-missing.so.1"}, Hint: "apt install it"}
	_, err := d.Discover(t.Context())
	if !errors.Is(err, dl.ErrNotInstalled) || !strings.Contains(err.Error(), "libOpenCL-missing.so.1 is not installed; apt install it") {
		t.Errorf("discover: %v", err)
	}
	_, err = d.Open(t.Context(), parse(t, "opencl:0"))
	if !errors.Is(err, devices.ErrNoDevice) || !errors.Is(err, dl.ErrNotInstalled) {
		t.Errorf("open: %v", err)
	}
}

func TestWrongLibrary(t *testing.T) {
	d := NewDriver(Options{})
	d.from = dl.Library{Names: []string{"libc.so.6"}}
	_, err := d.Discover(t.Context())
	if !errors.Is(err, dl.ErrNoSymbol) || !strings.Contains(err.Error(), "clCreateContext") {
		t.Errorf("got %v", err)
	}
}

func TestSpecFaults(t *testing.T) {
	d := NewDriver(Options{})
	_, err := d.Discover(t.Context())
	require(t, "OpenCL device", err)
	if _, err = d.Open(t.Context(), parse(t, "opencl:99")); !errors.Is(err, devices.ErrNoDevice) {
		t.Errorf("no such ordinal: %v", err)
	}
	_, err = d.Open(t.Context(), parse(t, "opencl:0,size=100TiB,map=maybe,speed=1"))
	if err == nil {
		t.Fatal("opened")
	}
	for _, want := range []string{"100.0 TiB", "map=maybe is neither auto nor off", `no parameter "speed"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestBaseline(t *testing.T) {
	d := NewDriver(Options{})
	_, err := d.Discover(t.Context())
	require(t, "OpenCL device", err)
	got, err := d.Baseline(t.Context(), parse(t, "opencl:0,size=64MiB"), BaselineOptions{Size: 16 * devices.MiB})
	if err != nil || got.Read <= 0 || got.Write <= 0 || got.Copy <= 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}
