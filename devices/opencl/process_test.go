package opencl

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// TestProcess runs the tests below in a process of its own, with an environment of its own:
// it prints the result of Discover and copies some bytes.
func TestProcess(t *testing.T) {
	if os.Getenv("HMCFS_OPENCL_PROCESS") == "" {
		t.Skip("runs in a process of its own only")
	}
	d := NewDriver(Options{})
	found, err := d.Discover(t.Context())
	if err != nil {
		fmt.Fprintf(os.Stdout, "reason: %v\n", err)
		return
	}
	fmt.Fprintf(os.Stdout, "total: %d\n", uint64(found[0].Info.Total))
	mem := alloc(t, open(t, "size=64MiB"), devices.MiB)
	put(t, mem, noise(1<<20, 1))
	if string(get(t, mem)) != string(noise(1<<20, 1)) {
		t.Error("bytes differ")
	}
	fmt.Fprintln(os.Stdout, "moved: yes")
}

// process runs TestProcess with exactly this environment.
func process(t *testing.T, env ...string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestProcess$")
	cmd.Env = append(env, "HMCFS_OPENCL_PROCESS=1")
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestBareEnvironment(t *testing.T) {
	_, err := NewDriver(Options{}).Discover(t.Context())
	require(t, "OpenCL device", err)
	if out := process(t); !strings.Contains(out, "moved: yes") {
		t.Errorf("without HOME and PATH: %s", out)
	}
}

func TestNoDriver(t *testing.T) {
	_, err := NewDriver(Options{}).Discover(t.Context())
	require(t, "OpenCL device", err)
	out := process(t, "OCL_ICD_VENDORS="+t.TempDir())
	if !strings.Contains(out, "reason: no OpenCL driver is installed; apt install") {
		t.Errorf("got %s", out)
	}
}

func TestPoCLMemoryLimit(t *testing.T) {
	found, err := NewDriver(Options{}).Discover(t.Context())
	require(t, "OpenCL device", err)
	if !strings.Contains(found[0].Info.Model, "Portable Computing Language") {
		t.Skip("the first device is not PoCL's")
	}
	out := process(t, "POCL_MEMORY_LIMIT=1")
	want := fmt.Sprintf("total: %d\n", uint64(devices.GiB/2))
	if !strings.Contains(out, want) || !strings.Contains(out, "moved: yes") {
		t.Errorf("got %s, want %s", out, want)
	}
}

// resident returns the process's resident memory, after collecting Go's garbage.
func resident(t *testing.T) devices.Size {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return devices.Size(pages) * devices.Size(os.Getpagesize())
}

// TestAllocationsDoNotLeak allocates and frees memory. Many small rounds show leaks per
// allocation, a few large ones show memory that is retained.
func TestAllocationsDoNotLeak(t *testing.T) {
	many, few := 1000, 25
	if testing.Short() {
		many, few = 200, 8
	}
	// Drivers may retain their own device memory, so only the kinds that the first device
	// really is are tested.
	for _, params := range []string{"map=auto", "map=off"} {
		dev := open(t, "size=1GiB,"+params)
		for range 10 {
			allocateOnce(t, dev, 16*devices.MiB)
		}
		before := resident(t)
		for range many {
			allocateOnce(t, dev, 256*devices.KiB)
		}
		for range few {
			allocateOnce(t, dev, 16*devices.MiB)
		}
		after := resident(t)
		t.Logf("resident %v before, %v after", before, after)
		if after > before+16*devices.MiB {
			t.Errorf("resident memory grew from %v to %v", before, after)
		}
		if u, err := dev.Usage(); err != nil || u.Used != 0 {
			t.Errorf("usage %+v, %v", u, err)
		}
	}
}

// allocateOnce allocates n bytes, uses them in each way, and frees them.
func allocateOnce(t *testing.T, dev devices.Device, n devices.Size) {
	t.Helper()
	mem, err := dev.Alloc(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	put(t, mem, []byte{1, 2, 3})
	if v, err := devices.MapHost(t.Context(), mem.All(), devices.ReadWrite); err == nil {
		v.Release()
	}
	if err := mem.Release(); err != nil {
		t.Fatal(err)
	}
}
