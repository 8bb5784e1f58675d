package cudalike

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/standin"
)

// vendorTest is a family and its stand-in.
type vendorTest struct {
	name   devices.Family
	driver func(Options) *Driver
	// source and soname are the stand-in's.
	source, soname string
	// wait is the call that waits for a stream, alloc the one that allocates;
	// count, out, copy and name likewise.
	wait, alloc, count, out string
	// fatal, oom are codes of the vendor's, with their names.
	fatal, oom         int
	fatalName, oomName string
}

func vendors() []vendorTest {
	return []vendorTest{
		{
			name: HIP, driver: NewHIP, source: "hip", soname: "libamdhip64.so.7",
			wait: "hipStreamSynchronize", alloc: "hipMalloc", count: "hipGetDeviceCount", out: "hipMemcpyDtoHAsync",
			fatal: 700, fatalName: "hipErrorIllegalAddress", oom: 2, oomName: "hipErrorOutOfMemory",
		},
		{
			name: Cambricon, driver: NewCambricon, source: "cn", soname: "libcndrv.so",
			wait: "cnQueueSync", alloc: "cnMalloc", count: "cnDeviceGetCount", out: "cnMemcpyDtoHAsync",
			fatal: 100016, fatalName: "CN_ERROR_ECC_UNCORRECTABLE", oom: 100100, oomName: "CN_MEMORY_ERROR_OUT_OF_MEMORY",
		},
		{
			name: MUSA, driver: NewMUSA, source: "musa", soname: "libmusart.so.5",
			wait: "musaStreamSynchronize", alloc: "musaMalloc", count: "musaGetDeviceCount", out: "musaMemcpyAsync",
			fatal: 700, fatalName: "musaErrorIllegalAddress", oom: 2, oomName: "musaErrorMemoryAllocation",
		},
		{
			name: Ascend, driver: NewAscend, source: "acl", soname: "libascendcl.so",
			wait: "aclrtSynchronizeStream", alloc: "aclrtMalloc", count: "aclrtGetDeviceCount", out: "aclrtMemcpyAsync",
			fatal: 507053, fatalName: "ACL_ERROR_RT_DEVICE_MEM_ERROR", oom: 207001, oomName: "ACL_ERROR_RT_MEMORY_ALLOCATION",
		},
	}
}

// compiled holds the stand-ins of this process, one copy of each: their state is global to
// the process, and no test leaves any.
type compiled struct {
	dir   string
	mu    sync.Mutex
	paths map[string]string
}

// Variables of a process that a test starts: the family and its stand-in.
const (
	familyEnv  = "HMCFS_VENDOR"
	libraryEnv = "HMCFS_VENDOR_LIBRARY"
)

var standins = &compiled{paths: map[string]string{}}

func TestMain(m *testing.M) {
	if os.Getenv(libraryEnv) != "" { // a process that another test has started
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "hmcfs-vendor-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	standins.dir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// path compiles a stand-in, once.
func (c *compiled) path(t testing.TB, v vendorTest) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.paths[v.source]; ok {
		return p
	}
	built, err := os.ReadFile(filepath.Join(standin.Library(t, v.source, v.soname), v.soname))
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(c.dir, v.source, v.soname)
	if err := os.Mkdir(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, built, 0o755); err != nil {
		t.Fatal(err)
	}
	c.paths[v.source] = p
	return p
}

// onStandin returns a driver of the family on its stand-in.
func (v vendorTest) onStandin(t testing.TB) *Driver {
	t.Helper()
	d := v.driver(Options{})
	d.family.library.Names = []string{standins.path(t, v)}
	return d
}

// control returns a function of the stand-in that is for tests.
func (v vendorTest) control(t testing.TB, name string) dl.Func {
	t.Helper()
	lib, err := dl.Open(dl.Library{Names: []string{standins.path(t, v)}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := lib.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// left returns the resources that were not returned to a stand-in.
func (v vendorTest) left(t testing.TB) string {
	t.Helper()
	n := uint64(v.control(t, "hmcfs_standin_left").Call())
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d allocations, %d streams, %d pinned, %d contexts", n&0xffff, n>>16&0xffff, n>>32&0xffff, n>>48)
}

// fail makes calls of the stand-in fail until the test ends; each rule is "CALL:NTH:CODE",
// the NTH call from now on or, with 0, every one.
func (v vendorTest) fail(t testing.TB, rules ...string) {
	t.Helper()
	text := ""
	for _, r := range rules {
		text += "fail=" + r + "\n"
	}
	v.configure(t, text)
}

// configure writes the stand-in's control file, which is emptied at the end of the test.
func (v vendorTest) configure(t testing.TB, text string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(standins.path(t, v)), "control")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.plain(t) })
}

// plain ends all failures and restores the default settings.
func (v vendorTest) plain(t testing.TB) {
	t.Helper()
	file := filepath.Join(filepath.Dir(standins.path(t, v)), "control")
	if err := os.WriteFile(file, []byte("devices=2\nmemory=268435456\npeer=1\n"), 0o600); err != nil {
		t.Error(err)
	}
}

// reset makes the stand-in forget the resources that a failed device could not free.
func (v vendorTest) reset(t testing.TB) {
	t.Helper()
	v.control(t, "hmcfs_standin_reset").Call()
}

// open opens a device of 40 MiB. It is closed at the end of the test, and the stand-in must
// then have all of its resources back.
func (v vendorTest) open(t testing.TB, ordinal int) devices.Device {
	t.Helper()
	t.Cleanup(func() {
		if left := v.left(t); left != "" && !t.Failed() {
			t.Errorf("left: %s", left)
		}
	})
	return v.openOn(t, v.onStandin(t), ordinal)
}

// pair opens both devices with one driver.
func (v vendorTest) pair(t testing.TB) (first, second devices.Device) {
	t.Helper()
	t.Cleanup(func() {
		if left := v.left(t); left != "" && !t.Failed() {
			t.Errorf("left: %s", left)
		}
	})
	d := v.onStandin(t)
	return v.openOn(t, d, 0), v.openOn(t, d, 1)
}

func (v vendorTest) openOn(t testing.TB, d *Driver, ordinal int) devices.Device {
	t.Helper()
	spec, err := devices.ParseSpec(fmt.Sprintf("%s:%d,size=40MiB", v.name, ordinal))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := d.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return dev
}

// each runs a test on every vendor's stand-in.
func each(t *testing.T, fn func(t *testing.T, v vendorTest)) {
	t.Helper()
	kit.Require(t, "tool:cc")
	for _, v := range vendors() {
		t.Run(string(v.name), func(t *testing.T) { fn(t, v) })
	}
}

// filled allocates memory with the bytes of the seed.
func filled(t testing.TB, dev devices.Device, seed uint64, n int) *devices.Memory {
	t.Helper()
	mem, err := dev.Alloc(t.Context(), devices.Size(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	})
	if err := dev.CopyIn(t.Context(), mem.All(), kit.Bytes(seed, 0, n)); err != nil {
		t.Fatal(err)
	}
	return mem
}

// holds checks that the memory contains the bytes of the seed.
func holds(t testing.TB, mem *devices.Memory, seed uint64) {
	t.Helper()
	got := make([]byte, mem.Size())
	err := mem.Device().CopyOut(t.Context(), got, mem.All())
	if err == nil && string(got) != string(kit.Bytes(seed, 0, len(got))) {
		err = errors.New("bytes differ")
	}
	if err != nil {
		t.Error(err)
	}
}
