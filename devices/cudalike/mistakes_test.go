package cudalike

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// coreOf returns the device without its abilities.
func coreOf(t testing.TB, dev devices.Device) *device {
	t.Helper()
	o, ok := dev.(opened)
	if !ok {
		t.Fatalf("%T is no device of this package", dev)
	}
	return o.core()
}

// TestOrdinalIsUsed allocates on the second card and queries the free memory of both cards:
// a library that ignores the device's number allocates on the first.
func TestOrdinalIsUsed(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		first, second := v.pair(t)
		left := func(dev devices.Device) devices.Size {
			n, err := coreOf(t, dev).Free()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before0, before1 := left(first), left(second)
		mem := filled(t, second, 1, 1<<20)
		if left(first) != before0 || left(second) != before1-devices.MiB {
			t.Errorf("left %v and %v, before %v and %v", left(first), left(second), before0, before1)
		}
		holds(t, mem, 1)
	})
}

// TestMemoryIsTheCards checks that an allocation is the card's own memory, and
// not host memory that was pinned and has a device address as well.
func TestMemoryIsTheCards(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		mem := filled(t, dev, 3, 100000)
		b, ok := mem.Handle().(*card.Block)
		if !ok || b.Addr>>56 != 0x0d {
			t.Errorf("address %#x is the host's", b.Addr)
		}
		if left := v.left(t); strings.Contains(left, " 1 pinned") || !strings.Contains(left, "1 allocations") {
			t.Errorf("taken: %s", left)
		}
		if dev.Info().HostMemory {
			t.Error("the device says that its memory is the host's")
		}
		if _, ok := dev.(devices.HostMapper); ok {
			t.Error("the device shows its memory to the host")
		}
	})
}

// TestAllVendorsTogether opens a device of every vendor in one process and copies bytes
// between them.
func TestAllVendorsTogether(t *testing.T) {
	kit.Require(t, "tool:cc")
	const n = 3<<20 + 17
	var devs []devices.Device
	for _, v := range vendors() {
		devs = append(devs, v.open(t, 1))
	}
	mem := filled(t, devs[0], 9, n)
	buf := make([]byte, n)
	for _, dev := range append(devs[1:], devs[0]) {
		if err := mem.Device().CopyOut(t.Context(), buf, mem.All()); err != nil {
			t.Fatal(err)
		}
		next := filled(t, dev, 0, n)
		if err := dev.CopyIn(t.Context(), next.All(), buf); err != nil {
			t.Fatal(err)
		}
		holds(t, next, 9)
		mem = next
	}
	err := devices.CopyPeer(t.Context(), filled(t, devs[1], 0, n).All(), mem.All())
	if err == nil {
		t.Error("a copy between two vendors' devices")
	}
}

// TestMistakesAreSeen makes the mistakes on purpose, each in a process of its own, which
// the stand-in must end: this proves that the other tests would detect them.
func TestMistakesAreSeen(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		for mistake, says := range map[string]string{
			"swapped copies":  "is device memory",
			"no device set":   "no device is set on this thread",
			"another device":  "device 0, the thread is on 1",
			"no wait":         "work with it",
			"freed twice":     "lies in no allocation",
			"beyond the end":  "lies in no allocation",
			"plain overlap":   "overlap",
			"stream of other": "the stream is of device",
		} {
			t.Run(mistake, func(t *testing.T) {
				out, err := v.process(t, "TestMistake", "HMCFS_VENDOR_MISTAKE="+mistake)
				if err == nil || !strings.Contains(out, "stand-in: ") || !strings.Contains(out, says) {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
	})
}

// process runs one of this package's tests in a process of its own, on the same
// stand-in. The test finds the vendor by familyEnv.
func (v vendorTest) process(t testing.TB, test string, env ...string) (out string, err error) {
	t.Helper()
	cmd := v.command(t, test, env...)
	p, err := cmd.CombinedOutput()
	return string(p), err
}

func (v vendorTest) command(t testing.TB, test string, env ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), "GOTRACEBACK=none",
		familyEnv+"="+string(v.name), libraryEnv+"="+standins.path(t, v))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// child returns the vendor that the process was started for; other runs skip the test.
func child(t *testing.T) vendorTest {
	t.Helper()
	name := os.Getenv(familyEnv)
	for _, v := range vendors() {
		if string(v.name) == name {
			standins.paths[v.source] = os.Getenv(libraryEnv)
			return v
		}
	}
	t.Skip("runs in a process of its own only")
	return vendorTest{}
}

// TestMistake makes one mistake.
func TestMistake(t *testing.T) {
	v := child(t)
	first, second := v.pair(t)
	a, b := coreOf(t, first), coreOf(t, second)
	mem := filled(t, first, 1, 4096)
	blk, ok := mem.Handle().(*card.Block)
	if !ok {
		t.Fatal("no block")
	}
	at := target{at: blk.Addr, room: 4096}
	buf := make([]byte, 4096)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	switch os.Getenv("HMCFS_VENDOR_MISTAKE") {
	case "swapped copies":
		must(a.withStream(func(s stream) error {
			card, host := dl.Bytes(uintptr(blk.Addr), 64), target{at: address(addressOf(buf)), room: 4096}
			return a.On(func() error { return a.t.in(host, card, s) })
		}))
	case "no device set":
		must(a.withStream(func(s stream) error { return a.t.in(at, buf, s) }))
	case "another device":
		must(b.withStream(func(s stream) error { return b.moveIn(at, buf, s) }))
	case "no wait":
		must(a.withStream(func(s stream) error {
			return a.On(func() error { return a.t.in(at, buf, s) })
		}))
		must(a.On(func() error { return a.t.free(blk.Addr) }))
	case "freed twice":
		must(a.On(func() error { return a.t.free(blk.Addr) }))
		must(a.On(func() error { return a.t.free(blk.Addr) }))
	case "beyond the end":
		must(a.withStream(func(s stream) error { return a.moveOut(at.plus(1), buf, s) }))
	case "plain overlap":
		must(a.withStream(func(s stream) error { return a.moveWithin(at.plus(64), at, 1024, s) }))
	case "stream of other":
		must(b.withStream(func(s stream) error { return a.moveIn(at, buf, s) }))
	}
	fmt.Fprintln(os.Stdout, "nobody has seen it")
}
