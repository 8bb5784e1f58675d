package tests

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// place is a directory in which a POSIX test runs.
type place struct {
	// name is tmpfs, host, sim0 and so on.
	name string
	// dir is an empty directory of mode 0777 in it.
	dir string
	// m is the mount, nil for tmpfs.
	m *mnt.M
}

// path returns a path in the place.
func (p place) path(elem ...string) string {
	return filepath.Join(append([]string{p.dir}, elem...)...)
}

// isTmpfs reports whether the place is the kernel's tmpfs.
func (p place) isTmpfs() bool { return p.m == nil }

// isDevice reports whether the bytes are in a device's memory.
func (p place) isDevice() bool { return p.m != nil && p.name != "host" }

// everywhere runs a test on tmpfs, which verifies the test itself, on the host tier, which the
// kernel serves, and on devices, which the daemon serves: one whose memory is copied, one
// whose memory is mapped, and one of OpenCL if available. Other users have access.
func everywhere(t *testing.T, fn func(t *testing.T, p place)) {
	t.Helper()
	everywhereWith(t, mnt.Options{AllowOther: true}, fn)
}

// everywhereWith is everywhere with the given mount options.
func everywhereWith(t *testing.T, o mnt.Options, fn func(t *testing.T, p place)) {
	t.Helper()
	kit.Check(t)
	o.Devices = []string{"host,size=64MiB", "sim:0,size=64MiB", "sim:1,size=64MiB,mapped=true"}
	devices := []string{"host", "sim0", "sim1"}
	if kit.Missing("opencl") == nil {
		o.Devices, devices = append(o.Devices, "opencl:0,size=64MiB"), append(devices, "ocl0")
	}
	m := mnt.Mount(t, o)
	places := []place{{name: "tmpfs", dir: mnt.Tmpfs(t, "64m")}}
	for _, d := range devices {
		places = append(places, place{name: d, dir: m.Path(d), m: m})
	}
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			p.dir = openDir(t, p.dir)
			fn(t, p)
		})
	}
}

// openDir creates a directory that all users may write to.
func openDir(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "") //nolint:usetesting // it is to be in the mount
	must(t, err)
	must(t, os.Chmod(dir, 0o777))
	return dir
}

// must fails the test immediately on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErrno checks that an error is the errno.
func wantErrno(t testing.TB, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// create creates a file with n bytes of the content of a seed.
func create(t testing.TB, path string, seed uint64, n int) {
	t.Helper()
	must(t, os.WriteFile(path, kit.Bytes(seed, 0, n), 0o644))
}

// wantContent checks that a file has exactly n bytes of the content of a seed.
func wantContent(t testing.TB, path string, seed uint64, n int) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	if len(got) != n {
		t.Errorf("%s has %d bytes, want %d", path, len(got), n)
	}
	if i := kit.DiffAt(got, seed, 0); i >= 0 {
		t.Errorf("%s differs at %d of %d", path, i, len(got))
	}
}

// open opens a file until the end of the test.
func open(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o644)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() }) // most tests close it themselves
	return f
}

// lstat returns the kernel's attributes of a file.
func lstat(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	return st
}

// mode returns the permission bits of a file, including set-ID and sticky bits.
func mode(t testing.TB, path string) uint32 {
	t.Helper()
	return lstat(t, path).Mode & 0o7777
}

// mntPatience is the timeout of tests for what the daemon does in the background.
const mntPatience = time.Minute
