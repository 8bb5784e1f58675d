package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/standin"
)

// TestReasons checks the reason that a person sees if there is no device.
func TestReasons(t *testing.T) {
	lib := newStandIn(t)
	broken := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(broken, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		library  string
		settings []string
		want     []string
	}{
		"no library":     {library: "/nowhere/libcuda.so.1", want: []string{"not installed", "install the NVIDIA driver"}},
		"broken library": {library: broken, want: []string{"does not load"}},
		"other library": {
			library: filepath.Join(standin.Library(t, "byvalue", "libother.so"), "libother.so"),
			want:    []string{"is not a CUDA driver", "cuDriverGetVersion"},
		},
		"no card":      {settings: []string{"devices=0"}, want: []string{"cuInit: CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"}},
		"old driver":   {settings: []string{"version=10020"}, want: []string{"too old", "CUDA 10.2", "11.0 is needed", "450"}},
		"mismatch":     {settings: []string{"fail=cuInit:0:803"}, want: []string{"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "driver versions"}},
		"unknown code": {settings: []string{"fail=cuInit:0:4711"}, want: []string{"cuInit: unknown CUDA error (4711)"}},
		"no count":     {settings: []string{"fail=cuDeviceGetCount:0:1"}, want: []string{"cuDeviceGetCount: CUDA_ERROR_INVALID_VALUE (1): invalid argument"}},
		"no memory":    {settings: []string{"memory=0"}, want: []string{"Stand-in GPU 0 reports no memory", "card 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.library == "" {
				c.library = lib.with(t, c.settings...).path
			}
			d := NewDriver(Options{Library: c.library})
			found, err := d.Discover(t.Context())
			if err == nil || len(found) > 0 {
				t.Fatalf("found %v, %v", found, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if _, err := d.Open(t.Context(), devices.Spec{Family: Family}); !errors.Is(err, devices.ErrNoDevice) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}

func TestForbidden(t *testing.T) {
	cause := errors.New("cause")
	file := filepath.Join(t.TempDir(), "nvidiactl")
	if err := forbidden(cause, file); err.Error() != "cause" {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o000); err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(file, os.O_RDWR, 0); err == nil {
		_ = f.Close()
		t.Skip("needs a user that permissions stop")
	}
	if err := forbidden(cause, file); !errors.Is(err, cause) || !strings.Contains(err.Error(), "may not open") {
		t.Errorf("forbidden file: %v", err)
	}
}

func TestDiscover(t *testing.T) {
	lib := newStandIn(t, "devices=3", "memory=104857600", "taken=1:94371840")
	d := lib.withManagement().driver()
	d.sys = t.TempDir()
	dir := filepath.Join(d.sys, "bus/pci/devices/0000:ac:00.0")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "numa_node"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		found, err := d.Discover(t.Context())
		if err != nil || len(found) != 3 {
			t.Fatalf("%d devices, %v", len(found), err)
		}
		for i, f := range found {
			want := devices.Info{
				Name: devices.Name(fmt.Sprintf("cuda%d", i)), Family: "cuda", Ordinal: devices.Ordinal(i),
				Model: fmt.Sprintf("Stand-in GPU %d", i), Total: 94371840, MaxAlloc: 94371840, Align: 256,
				PCI:  fmt.Sprintf("0000:%02x:00.0", 0xab+i),
				UUID: fmt.Sprintf("GPU-c0c3c6c9-cccf-d2d5-d8db-dee1e4e7ea%02x", i), NUMA: -1,
			}
			free := want.Total
			if i == 1 {
				want.NUMA, free = 1, 10*devices.MiB
			}
			if f.Info != want || f.Usage != (devices.Usage{Total: want.Total, Free: free}) {
				t.Errorf("device %d: %+v\nwant %+v, %v free", i, f, want, free)
			}
		}
	}
}

func TestOpen(t *testing.T) {
	lib := newStandIn(t, "memory=104857600")
	d := lib.driver()
	for text, want := range map[string]string{
		"cuda:2":               "there is no CUDA device 2, the last is 1",
		"cuda:0,size=101MiB":   "size is 101.0 MiB, Stand-in GPU 0 has 100.0 MiB",
		"cuda:0,size=1MiB,x=1": "x",
	} {
		spec, err := devices.ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Open(t.Context(), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if total := open(t, d, "cuda:1,size=100MiB").Info().Total; total != 100*devices.MiB {
		t.Errorf("a device of %v", total)
	}
	lib.set("fail=cuDevicePrimaryCtxRetain:1:46")
	_, err := d.Open(t.Context(), devices.Spec{Family: Family})
	if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), "another program uses the card exclusively") {
		t.Errorf("a card in use: %v", err)
	}
}

// TestDiscoverTakesNoContext has cards that provide no context, like one that another
// process uses exclusively: they are found, with the free memory that the management
// library reports, or otherwise with all of their memory.
func TestDiscoverTakesNoContext(t *testing.T) {
	const taken, all = 64 * devices.MiB, 256 * devices.MiB / 10 * 9
	for _, managed := range []bool{true, false} {
		lib := newStandIn(t, "fail=cuDevicePrimaryCtxRetain:0:46", fmt.Sprint("taken=1:", uint64(taken)))
		if managed {
			lib = lib.withManagement()
		}
		found, err := lib.driver().Discover(t.Context())
		if err != nil || len(found) != 2 {
			t.Fatalf("found %+v, %v", found, err)
		}
		want := devices.Usage{Total: all, Free: all}
		if found[0].Usage != want {
			t.Errorf("%v, want %v", found[0].Usage, want)
		}
		if managed {
			want.Free = 256*devices.MiB - taken
		}
		if found[1].Usage != want {
			t.Errorf("%v, want %v", found[1].Usage, want)
		}
	}
	// A management library that does not work is treated as missing.
	lib := newStandIn(t).withManagement()
	lib.set("fail=nvmlInit_v2:0:9")
	if found, err := lib.driver().Discover(t.Context()); err != nil || found[1].Usage.Free != all {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestMIGHasItsOwnUUID(t *testing.T) {
	d := newStandIn(t, "devices=1", "mig=1").driver()
	if id := open(t, d, "cuda:0").Info().UUID; !strings.HasPrefix(id, "MIG-") {
		t.Errorf("a part of a card is %q", id)
	}
}
