package tests

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// publishSize is a multiple of neither the block nor the page size.
const publishSize = 3<<20 + 4097

// onPublishers runs a test in a directory of each kind of device: of the host tier, both
// served by the kernel and by the daemon, of a device whose memory is copied, of one whose
// memory is mapped, and of OpenCL if available. Short tests omit the host tier served by the
// daemon.
func onPublishers(t *testing.T, fn func(t *testing.T, p place)) {
	t.Helper()
	kit.Check(t)
	specs := []string{"host,size=128MiB", "sim:0,size=128MiB", "sim:1,size=128MiB,mapped=true"}
	names := []string{"host", "sim0", "sim1"}
	if kit.Missing("opencl") == nil {
		specs, names = append(specs, "opencl:0,size=128MiB"), append(names, "ocl0")
	}
	m := mnt.Mount(t, mnt.Options{Devices: specs})
	for _, name := range names {
		t.Run(name, func(t *testing.T) { fn(t, place{name: name, dir: openDir(t, m.Path(name)), m: m}) })
	}
	if testing.Short() {
		return
	}
	t.Run("host by the daemon", func(t *testing.T) {
		m := mnt.Mount(t, mnt.Options{Devices: specs[:2], Extra: []string{"--passthrough", "off"}})
		fn(t, place{name: "host", dir: openDir(t, m.Path("host")), m: m})
	})
}

// other returns the directory of a device other than the place's.
func (p place) other() string {
	if p.name == "host" {
		return p.m.Path("sim0")
	}
	return p.m.Path("host")
}

// publish creates a file of n bytes, publishes it under a key, and returns its path.
func (p place) publish(t testing.TB, key string, seed uint64, n int) string {
	t.Helper()
	from := p.path(key + ".made")
	create(t, from, seed, n)
	to := p.m.Path("publish", key)
	must(t, os.Rename(from, to))
	return to
}

// wantGone checks that nothing is published under a path any more.
func wantGone(t testing.TB, path string) {
	t.Helper()
	_, err := os.Lstat(path)
	wantErrno(t, err, unix.ENOENT)
	_, err = os.Open(path)
	wantErrno(t, err, unix.ENOENT)
}

// wantGoneSoon waits for that, after a time to live or after a map, whose end the daemon
// learns a moment after munmap(2).
func wantGoneSoon(t testing.TB, path string) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() error {
		if _, err := os.Lstat(path); !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("stat %s: %w", path, err)
		}
		return nil
	})
	wantGone(t, path)
}

// wantOffered checks that a complete file can be received, by receiving it.
func wantOffered(t testing.TB, path string, seed uint64, n int) {
	t.Helper()
	if st := lstat(t, path); st.Size != int64(n) {
		t.Errorf("%s has %d bytes, want %d", path, st.Size, n)
	}
	wantContent(t, path, seed, n)
	wantGone(t, path)
}

// namesIn lists a directory.
func namesIn(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// mapping maps a file of publishSize until the end of the test, and closes it.
func mapping(t testing.TB, path string, flags int) (view []byte, unmap func()) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	view, err = unix.Mmap(int(f.Fd()), 0, publishSize, unix.PROT_READ, flags)
	must(t, err)
	must(t, f.Close())
	mapped := true
	unmap = func() {
		if mapped {
			mapped = false
			must(t, unix.Munmap(view))
		}
	}
	t.Cleanup(unmap)
	return view, unmap
}
