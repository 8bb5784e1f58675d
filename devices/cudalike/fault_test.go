package cudalike

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/tests/kit"
)

func TestLibraryIsMissing(t *testing.T) {
	for _, v := range vendors() {
		d := v.driver(Options{})
		d.family.library.Names = []string{"libnothere-" + v.soname}
		_, err := d.Discover(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is not installed; install ") {
			t.Errorf("%s: %v", v.name, err)
		}
		_, err = d.Open(t.Context(), devices.Spec{Family: v.name})
		if !errors.Is(err, devices.ErrNoDevice) {
			t.Errorf("%s: open: %v", v.name, err)
		}
	}
}

func TestLibraryIsAnother(t *testing.T) {
	for _, v := range vendors() {
		d := v.driver(Options{})
		d.family.library.Names = []string{"libc.so.6"}
		_, err := d.Discover(t.Context())
		if err == nil || !strings.Contains(err.Error(), "libc.so.6 has no symbol "+v.alloc) {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

// TestNoDevice has an existing library and no card: the library returns an error, or counts
// none, or fails to start, and may recover.
func TestNoDevice(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		inits := map[devices.Family]string{Cambricon: "cnInit:0:100004", Ascend: "aclInit:0:507899"}
		texts := map[string]string{
			"fails":  fmt.Sprintf("fail=%s:0:%d\n", v.count, v.fatal),
			"counts": "devices=0\n",
		}
		if rule, has := inits[v.name]; has {
			texts["init"] = "fail=" + rule + "\n"
		}
		for name, text := range texts {
			t.Run(name, func(t *testing.T) {
				v.configure(t, text)
				d := v.onStandin(t)
				_, err := d.Discover(t.Context())
				if err == nil || !strings.Contains(err.Error(), v.soname+" finds no ") || !strings.Contains(err.Error(), "driver loaded") {
					t.Errorf("discover: %v", err)
				}
				if name == "fails" && !strings.Contains(err.Error(), fmt.Sprintf("%s (%d)", v.fatalName, v.fatal)) {
					t.Errorf("discover: %v", err)
				}
				if _, err = d.Open(t.Context(), devices.Spec{Family: v.name}); !errors.Is(err, devices.ErrNoDevice) {
					t.Errorf("open: %v", err)
				}
				v.plain(t)
				if found, err := d.Discover(t.Context()); err != nil || len(found) != 2 {
					t.Errorf("later: %d devices, %v", len(found), err)
				}
			})
		}
	})
}

func TestFacts(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		d := v.onStandin(t)
		found, err := d.Discover(t.Context())
		if err != nil || len(found) != 2 {
			t.Fatalf("%d devices, %v", len(found), err)
		}
		for i, f := range found {
			in := f.Info
			if want := devices.Name(fmt.Sprintf("%s%d", v.name, i)); in.Name != want || in.Ordinal != devices.Ordinal(i) || in.Family != v.name {
				t.Errorf("device %d is %+v", i, in)
			}
			if in.PCI == "" || in.PCI != strings.ToLower(in.PCI) || in.NUMA != -1 {
				t.Errorf("%s: PCI %q, NUMA %d", in.Name, in.PCI, in.NUMA)
			}
			if !strings.HasPrefix(in.Model, "Stand-in") || in.Total != 256*devices.MiB/10*9 || f.Usage.Free != in.Total {
				t.Errorf("%+v, %+v", in, f.Usage)
			}
		}
		first, second := found[0].Info.UUID, found[1].Info.UUID
		if has := first != "" && second != ""; has == (v.name == MUSA) || has && first == second {
			t.Errorf("cards %q and %q", first, second)
		}
		if left := v.left(t); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

func TestWrongSpecs(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		d := v.onStandin(t)
		for text, says := range map[string]string{
			":2":             "the last is 1",
			":0,size=1TiB":   "has 256.0 MiB",
			":0,size=0":      "size is 0",
			":0,map=auto":    `no parameter "map"`,
			":0,size=1QiB":   "unknown unit",
			":1,size=257MiB": "size is 257.0 MiB",
		} {
			spec, err := devices.ParseSpec(string(v.name) + text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = d.Open(t.Context(), spec); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if left := v.left(t); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

// TestCardIsFull has another program use the card's memory.
func TestCardIsFull(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		first, second := v.pair(t)
		v.configure(t, fmt.Sprintf("taken=0:%d\n", 256*devices.MiB-5*devices.MiB))
		_, err := first.Alloc(t.Context(), 6*devices.MiB)
		var oom *devices.OutOfMemoryError
		if !errors.As(err, &oom) || oom.Asked != 6*devices.MiB || oom.Free != 5*devices.MiB || oom.Device != first.Info().Name {
			t.Errorf("%+v, %v", oom, err)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s: %s (%d): ", v.alloc, v.oomName, v.oom)) {
			t.Errorf("%v", err)
		}
		if u, err := first.Usage(); err != nil || u.Used != 0 || u.Free != 5*devices.MiB {
			t.Errorf("%+v, %v", u, err)
		}
		holds(t, filled(t, first, 1, 5<<20), 1)
		holds(t, filled(t, second, 2, 6<<20), 2)
	})
}

// TestPassingFailure makes a call fail in a way that a runtime survives.
func TestPassingFailure(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		mem := filled(t, dev, 1, 100)
		epoch := dev.Epoch()
		v.fail(t, v.wait+":1:99")
		err := dev.Fill(t.Context(), mem.All(), 7)
		var e *dl.Error
		if !errors.Is(err, devices.ErrDevice) || !errors.As(err, &e) || e.Code != 99 || e.Call != v.wait {
			t.Errorf("%v", err)
		}
		if err := dev.CopyIn(t.Context(), mem.All(), kit.Bytes(5, 0, 100)); err != nil {
			t.Error(err)
		}
		holds(t, mem, 5)
		if dev.Epoch() != epoch {
			t.Error("the epoch has changed")
		}
	})
}

// TestNothingComesLate makes the wait for a copy fail once: when the copy returns, the
// runtime must nevertheless have finished with the caller's memory.
func TestNothingComesLate(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		mem, other := filled(t, dev, 1, 4096), filled(t, dev, 2, 4096)
		buf := make([]byte, 4096)
		v.fail(t, v.wait+":1:99")
		if err := dev.CopyOut(t.Context(), buf, mem.All()); !errors.Is(err, devices.ErrDevice) {
			t.Errorf("%v", err)
		}
		clear(buf)
		holds(t, other, 2)
		if strings.Trim(string(buf), "\x00") != "" {
			t.Error("bytes came after the copy had returned")
		}
	})
}

// TestDeviceFails makes one card fail permanently: memory on it is lost, memory on the
// other is not, and nothing hangs or ends the process.
func TestDeviceFails(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		t.Cleanup(func() { v.reset(t) }) // the failed card's resources are never freed
		d := v.onStandin(t)
		first, second := v.openOn(t, d, 0), v.openOn(t, d, 1)
		lost, kept := filled(t, first, 1, 5000), filled(t, second, 2, 5000)
		epoch := first.Epoch()
		v.fail(t, fmt.Sprintf("%s:0:%d:0", v.wait, v.fatal))
		buf := make([]byte, 5000)
		err := first.CopyOut(t.Context(), buf, lost.All())
		if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), fmt.Sprintf("%s (%d)", v.fatalName, v.fatal)) ||
			!strings.Contains(err.Error(), "has failed") {
			t.Errorf("copy: %v", err)
		}
		if first.Epoch() == epoch || second.Epoch() == first.Epoch() {
			t.Errorf("epochs %d, before %d, of the other %d", first.Epoch(), epoch, second.Epoch())
		}
		for what, err := range map[string]error{
			"CopyIn": first.CopyIn(t.Context(), lost.All(), buf), "CopyOut": first.CopyOut(t.Context(), buf, lost.All()),
			"Copy": first.Copy(t.Context(), lost.All(), lost.All()), "Fill": first.Fill(t.Context(), lost.All(), 1),
			"CopyPeer": devices.CopyPeer(t.Context(), kept.All(), lost.All()),
		} {
			if !errors.Is(err, devices.ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := first.Alloc(t.Context(), 1); !errors.Is(err, devices.ErrDevice) {
			t.Errorf("alloc: %v", err)
		}
		if u, err := first.Usage(); err != nil || u.Free != 0 {
			t.Errorf("usage %+v, %v", u, err)
		}
		holds(t, kept, 2)
		holds(t, filled(t, second, 3, 7000), 3)
	})
}
