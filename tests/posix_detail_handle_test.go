package tests

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// handleOf returns the file handle that an NFS server keeps of a file.
func handleOf(t testing.TB, path string) unix.FileHandle {
	t.Helper()
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		t.Fatalf("handle of %s: %v", path, err)
	}
	return h
}

// openHandle opens the file of a handle, on the file system of dir.
func openHandle(dir string, h unix.FileHandle) (*os.File, error) {
	var f *os.File
	err := withFile(dir, os.O_RDONLY, func(d *os.File) error {
		fd, err := unix.OpenByHandleAt(int(d.Fd()), h, unix.O_RDONLY)
		if err == nil {
			f = os.NewFile(uintptr(fd), "by handle")
		}
		return err
	})
	return f, err
}

// forget makes the kernel drop unused names and inodes.
func forget(t testing.TB) {
	t.Helper()
	must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0))
}

func wantByHandle(t testing.TB, dir string, h unix.FileHandle, ino uint64, seed uint64, n int) {
	t.Helper()
	f, err := openHandle(dir, h)
	if err != nil {
		t.Errorf("open by handle: %v", err)
		return
	}
	defer func() { _ = f.Close() }() // the file was only read
	if st := fstat(t, f); st.Ino != ino {
		t.Errorf("inode %d, want %d", st.Ino, ino)
	}
	got, err := io.ReadAll(f)
	must(t, err)
	if len(got) != n || kit.DiffAt(got, seed, 0) >= 0 {
		t.Errorf("%d other bytes by the handle", len(got))
	}
}

func TestInodeNumbersAndHandlesOutliveEviction(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 5000)
		must(t, os.MkdirAll(p.path("d", "e"), 0o755))
		create(t, p.path("d", "e", "b"), 2, 5000)
		names := []string{p.dir, p.path("a"), p.path("d"), p.path("d", "e"), p.path("d", "e", "b")}
		inodes := make(map[string]uint64)
		for _, n := range names {
			inodes[n] = lstat(t, n).Ino
		}
		ha, hb := handleOf(t, p.path("a")), handleOf(t, p.path("d", "e", "b"))
		forget(t)
		wantByHandle(t, p.dir, hb, inodes[p.path("d", "e", "b")], 2, 5000)
		must(t, os.Rename(p.path("a"), p.path("d", "renamed")))
		forget(t)
		wantByHandle(t, p.dir, ha, inodes[p.path("a")], 1, 5000)
		must(t, os.Rename(p.path("d", "renamed"), p.path("a")))
		for _, n := range names {
			if got := lstat(t, n).Ino; got != inodes[n] {
				t.Errorf("%s has inode %d, had %d", n, got, inodes[n])
			}
		}
		must(t, os.Remove(p.path("a")))
		forget(t)
		create(t, p.path("other"), 3, 5000)
		if f, err := openHandle(p.dir, ha); err == nil {
			t.Error("a removed file can be opened by its handle")
			_ = f.Close()
		} else {
			wantErrno(t, err, unix.ESTALE)
		}
	})
}

func TestInodeNumbersAndHandlesOutliveRemount(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	const files = 20
	dir := m.Path("host", "d")
	must(t, os.Mkdir(dir, 0o755))
	handles, inodes := make([]unix.FileHandle, files), make([]uint64, files)
	name := func(i int) string { return fmt.Sprintf("%s/%d", dir, i) }
	for i := range files {
		create(t, name(i), uint64(i), 1000+i)
		handles[i], inodes[i] = handleOf(t, name(i)), lstat(t, name(i)).Ino
	}
	check := func() {
		t.Helper()
		for i := range files {
			wantByHandle(t, m.Dir, handles[i], inodes[i], uint64(i), 1000+i)
			if got := lstat(t, name(i)).Ino; got != inodes[i] {
				t.Errorf("inode %d, was %d", got, inodes[i])
			}
		}
	}
	m.Remount()
	check()
	m.Kill()
	m.Start()
	check()
	// An inode number is never reused: a handle of a removed file is stale, and does not lead
	// to another file.
	must(t, os.Remove(name(0)))
	m.Remount()
	create(t, name(0), 99, 1000)
	if f, err := openHandle(m.Dir, handles[0]); err == nil {
		t.Error("a removed file can be opened by its handle after a remount")
		_ = f.Close()
	}
}
