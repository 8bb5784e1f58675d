package tests

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

const gib = 1 << 30

func TestFilesBeyond4GiB(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		f := open(t, p.path("a"), os.O_RDWR|os.O_CREATE)
		// Around 4 GiB, the limit of 32 bits, and far beyond.
		for i, off := range []int64{0, 4*gib - 70_000, 5 * gib, 1 << 42} {
			writeRange(t, f, uint64(i+1), off, 140_000)
		}
		for i, off := range []int64{0, 4*gib - 70_000, 5 * gib, 1 << 42} {
			wantRange(t, f, uint64(i+1), off, 140_000)
		}
		wantZeros(t, f, 2*gib, 100_000)
		wantZeros(t, f, 4*gib+70_000, 100_000)
		if st := fstat(t, f); st.Size != 1<<42+140_000 || st.Blocks*512 > 4<<20 {
			t.Errorf("size %d, %d blocks", st.Size, st.Blocks)
		}
		// The byte at 4 GiB and the byte at its low 32 bits are distinct.
		wantRange(t, f, 1, 0, 140_000)
		must(t, f.Truncate(4*gib+5))
		wantRange(t, f, 2, 4*gib-70_000, 70_005)
		if st := fstat(t, f); st.Size != 4*gib+5 {
			t.Errorf("size %d", st.Size)
		}
		must(t, fallocate(f, punchHole, 4*gib-100, 105))
		wantZeros(t, f, 4*gib-100, 105)
		if got, err := unix.Seek(int(f.Fd()), gib, unix.SEEK_DATA); err != nil || got < 4*gib-70_000-1<<20 || got > 4*gib-70_000 {
			t.Errorf("data at %d, %v", got, err)
		}
		must(t, f.Close())
	})
}

// TestCopyAcross4GiB does not run on tmpfs, whose copies fill the holes.
func TestCopyAcross4GiB(t *testing.T) {
	const size = 5*gib + 1000
	onDevices(t, func(t *testing.T, p place) {
		from := open(t, p.path("from"), os.O_RDWR|os.O_CREATE)
		must(t, from.Truncate(size))
		places := []int64{0, gib - 50, 2*gib - 50, 4*gib - 50_000, size - 10_000}
		for i, off := range places {
			writeRange(t, from, uint64(i+1), off, min(100_000, int(size-off)))
		}
		to := open(t, p.path("to"), os.O_RDWR|os.O_CREATE)
		copyAll(t, from, to, size)
		if st := fstat(t, to); st.Size != size {
			t.Errorf("size %d, want %d", st.Size, size)
		}
		for i, off := range places {
			wantRange(t, to, uint64(i+1), off, min(100_000, int(size-off)))
		}
		wantZeros(t, to, 3*gib, 100_000)
		must(t, from.Close())
		must(t, to.Close())
	})
}

// copyAll copies n bytes by copy_file_range, as cp(1) does.
func copyAll(t *testing.T, from, to *os.File, n int64) {
	t.Helper()
	var in, out int64
	for in < n {
		k, err := copyFileRange(from, &in, to, &out, int(n-in))
		if err != nil || k == 0 {
			t.Fatalf("copied %d, %v at %d", k, err, in)
		}
		if in != out {
			t.Fatalf("read up to %d, written up to %d", in, out)
		}
	}
}

func TestListingOfManyEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kit.Check(t)
	const makers = 4
	entries := kit.Rounds(0, 10_000, 100_000)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host", "sim:0,size=64MiB"}})
	dir := m.Path("sim0", "d")
	must(t, os.Mkdir(dir, 0o755))
	d := open(t, dir, os.O_RDONLY)
	var wg sync.WaitGroup
	for w := range makers {
		wg.Go(func() {
			for i := w; i < entries; i += makers {
				if err := unix.Mknodat(int(d.Fd()), fmt.Sprintf("entry-%06d", i), unix.S_IFREG|0o644, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	names, err := d.Readdirnames(-1)
	must(t, err)
	seen := make(map[string]bool, entries)
	for _, n := range names {
		if seen[n] {
			t.Fatalf("%s is listed twice", n)
		}
		seen[n] = true
	}
	if len(seen) != entries {
		t.Errorf("%d names, want %d", len(seen), entries)
	}
	must(t, d.Close())
}

func TestCopyInsideADeviceStaysThere(t *testing.T) {
	kit.Check(t)
	o := mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}}
	devices := []string{"sim0"}
	if kit.Missing("opencl") == nil {
		o.Devices, devices = append(o.Devices, "opencl:0,size=64MiB"), append(devices, "ocl0")
	}
	m := mnt.Mount(t, o)
	const size = 9<<20 + 123
	for _, device := range devices {
		create(t, m.Path(device, "a"), 1, size)
		before := m.Stats()
		kit.Require(t, "tool:cp")
		run(t, "cp", m.Path(device, "a"), m.Path(device, "b"))
		after := m.Stats()
		wantXattr(t, m.Path(device, "b"), "user.hmc.path", "d2d")
		for _, path := range []string{"h2d", "d2h", "staged", "mapped"} {
			if n := after.Bytes(path) - before.Bytes(path); n != 0 {
				t.Errorf("%s: %d bytes went by %s", device, n, path)
			}
		}
		if n := after.Bytes("d2d") - before.Bytes("d2d"); n != size {
			t.Errorf("%s: %d bytes went by d2d, want %d", device, n, size)
		}
		wantContent(t, m.Path(device, "b"), 1, size)
	}
}
