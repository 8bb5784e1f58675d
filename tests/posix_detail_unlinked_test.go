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

// losingName returns the ways in which an open file can lose its name.
func losingName(p place) map[string]func(name string) error {
	return map[string]func(name string) error{
		"unlinked": os.Remove,
		"renamed over": func(name string) error {
			if err := os.WriteFile(p.path("new"), []byte("new"), 0o644); err != nil {
				return err
			}
			return os.Rename(p.path("new"), name)
		},
	}
}

func TestOpenFileWithoutAName(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for how, lose := range losingName(p) {
			t.Run(how, func(t *testing.T) {
				name := p.path(how)
				create(t, name, 1, 100_000)
				f := open(t, name, os.O_RDWR)
				before := fstat(t, f)
				must(t, lose(name))
				after := fstat(t, f)
				if after.Ino != before.Ino || after.Nlink != 0 || after.Size != 100_000 || after.Mode != before.Mode {
					t.Errorf("before %+v\nafter  %+v", before, after)
				}
				useWithoutName(t, f)
				must(t, f.Close())
			})
		}
		wantContentOf(t, p.path("renamed over"), "new")
	})
}

// useWithoutName uses an open file of 100 000 bytes of content 1 in every way in which an open
// file can be used.
func useWithoutName(t *testing.T, f *os.File) {
	t.Helper()
	wantRange(t, f, 1, 0, 100_000)
	writeRange(t, f, 2, 50_000, 100_000)
	wantRange(t, f, 1, 0, 50_000)
	wantRange(t, f, 2, 50_000, 100_000)
	must(t, f.Truncate(60_000))
	must(t, f.Chmod(0o600))
	must(t, fallocate(f, punchHole, 0, 4096))
	must(t, f.Sync())
	if st := fstat(t, f); st.Size != 60_000 || st.Mode&0o7777 != 0o600 || st.Nlink != 0 {
		t.Errorf("size %d, mode %o, %d links", st.Size, st.Mode, st.Nlink)
	}
	wantZeros(t, f, 0, 4096)
	wantRange(t, f, 1, 4096, 50_000-4096)
	mem, err := unix.Mmap(int(f.Fd()), 0, 60_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	if i := kit.DiffAt(mem[50_000:], 2, 50_000); i >= 0 {
		t.Errorf("the map differs at %d", i)
	}
	mem[1] = 7
	must(t, unix.Munmap(mem))
	var b [1]byte
	if _, err := f.ReadAt(b[:], 1); err != nil || b[0] != 7 {
		t.Errorf("read %d, %v after a store through the map", b[0], err)
	}
}

// TestAttributesOfAFileWithoutAName checks files by O_PATH after their names were removed.
func TestAttributesOfAFileWithoutAName(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for what, lose := range map[string]func(name string) (size int64){
			"removed": func(name string) int64 {
				must(t, os.Remove(name))
				return 5000
			},
			"replaced": func(name string) int64 {
				create(t, name+".new", 2, 10)
				must(t, os.Rename(name+".new", name))
				return 5000
			},
			"removed, written and closed": func(name string) int64 {
				must(t, withFile(name, unix.O_RDWR, func(f *os.File) error {
					must(t, os.Remove(name))
					writeRange(t, f, 1, 5000, 3000)
					return nil
				}))
				return 8000
			},
		} {
			name := p.path(what)
			create(t, name, 1, 5000)
			fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
			must(t, err)
			want := lose(name)
			var st unix.Stat_t
			// The kernel sends the release after close has returned.
			kit.Eventually(t, mntPatience, func() bool {
				must(t, unix.Fstat(fd, &st))
				return st.Size == want
			})
			if st.Nlink != 0 {
				t.Errorf("%s: %d names, want 0", what, st.Nlink)
			}
			must(t, unix.Close(fd))
		}
	})
}

// TestReopenAFileWithoutAName opens, through /proc, a file that only a descriptor of O_PATH
// refers to. Its memory is freed when that is closed.
func TestReopenAFileWithoutAName(t *testing.T) {
	everywhere(t, reopenWithoutName)
}

func TestReopenAFileWithoutANameWithoutPassthrough(t *testing.T) {
	everywhereWith(t, mnt.Options{AllowOther: true, Extra: []string{"--passthrough", "off"}}, reopenWithoutName)
}

func reopenWithoutName(t *testing.T, p place) {
	for how, lose := range losingName(p) {
		t.Run(how, func(t *testing.T) {
			before := freeIn(t, p)
			name := p.path(how)
			create(t, name, 1, 5<<20)
			fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
			must(t, err)
			must(t, lose(name))
			again := fmt.Sprintf("/proc/self/fd/%d", fd)
			must(t, withFile(again, unix.O_RDONLY, func(f *os.File) error {
				wantRange(t, f, 1, 0, 5<<20)
				return nil
			}))
			must(t, withFile(again, unix.O_RDWR, func(f *os.File) error {
				writeRange(t, f, 2, 1<<20, 100_000)
				return nil
			}))
			must(t, withFile(again, unix.O_RDONLY, func(f *os.File) error {
				wantRange(t, f, 1, 0, 1<<20)
				wantRange(t, f, 2, 1<<20, 100_000)
				wantRange(t, f, 1, 1<<20+100_000, 4<<20-100_000)
				return nil
			}))
			var st unix.Stat_t
			must(t, unix.Fstat(fd, &st))
			if st.Size != 5<<20 || st.Nlink != 0 {
				t.Errorf("size %d, %d names", st.Size, st.Nlink)
			}
			must(t, os.Truncate(again, 4096))
			must(t, unix.Close(fd))
			_ = os.Remove(name) // the file that replaced it
			kit.Eventually(t, mntPatience, func() bool { return freeIn(t, p) >= before })
		})
	}
}

// TestKillWithAFileWithoutAName kills the daemon while a descriptor of O_PATH refers to files:
// the next daemon frees their memory.
func TestKillWithAFileWithoutAName(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	for _, device := range []string{"host", "sim0"} {
		name := m.Path(device, "a")
		create(t, name, 1, 5<<20)
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		must(t, err)
		defer func() { must(t, unix.Close(fd)) }()
		must(t, os.Remove(name))
		// The kernel sends the release after close has returned: only then is preallocated
		// memory freed.
		kit.Eventually(t, mntPatience, func() error {
			if used := m.Device(device).Used; used != 5<<20 {
				return fmt.Errorf("%s: %d bytes are used", device, used)
			}
			return nil
		})
	}
	m.Kill()
	m.Start()
	for _, device := range []string{"host", "sim0"} {
		kit.Eventually(t, mntPatience, func() bool { return m.Device(device).Used == 0 })
	}
}

// freeIn returns the free blocks that statfs reports.
func freeIn(t testing.TB, p place) uint64 {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(p.dir, &st))
	return st.Bfree
}

// TestRoomAfterRemoval fills a device repeatedly: the space of removed files is available for
// the next file.
func TestRoomAfterRemoval(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		if p.isTmpfs() {
			return
		}
		whole := int64(freeIn(t, p)) * 4096
		for i := range 100 {
			f, err := os.Create(p.path("a"))
			must(t, err)
			must(t, fallocate(f, 0, 0, whole))
			writeRange(t, f, uint64(i), whole-5000, 5000)
			must(t, f.Close())
			must(t, os.Remove(p.path("a")))
		}
	})
}

func TestXattrsOfAFileWithoutAName(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 10)
		must(t, unix.Setxattr(p.path("a"), "user.old", []byte("1"), 0))
		f := open(t, p.path("a"), os.O_RDWR)
		fd := int(f.Fd())
		must(t, os.Remove(p.path("a")))
		must(t, unix.Fsetxattr(fd, "user.new", []byte("22"), 0))
		for name, want := range map[string]string{"user.old": "1", "user.new": "22"} {
			var b [10]byte
			n, err := unix.Fgetxattr(fd, name, b[:])
			if err != nil || string(b[:n]) != want {
				t.Errorf("%s: %q, %v", name, b[:max(n, 0)], err)
			}
		}
		must(t, f.Close())
	})
}

func TestHardLinkKeepsAnOpenFile(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 5000)
		must(t, os.Link(p.path("a"), p.path("b")))
		f := open(t, p.path("a"), os.O_RDWR)
		must(t, os.Remove(p.path("a")))
		writeRange(t, f, 1, 5000, 5000)
		must(t, f.Close())
		wantContent(t, p.path("b"), 1, 10_000)
		if st := lstat(t, p.path("b")); st.Nlink != 1 {
			t.Errorf("%d links", st.Nlink)
		}
	})
}

func TestRemovedDirectoryIsEmptyAndTakesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		must(t, os.Mkdir(p.path("d"), 0o755))
		d := open(t, p.path("d"), os.O_RDONLY)
		must(t, os.Remove(p.path("d")))
		if st := fstat(t, d); st.Nlink != 0 {
			t.Errorf("%d links", st.Nlink)
		}
		names, err := d.Readdirnames(-1)
		if len(names) != 0 {
			t.Errorf("listed %q", names)
		}
		wantErrno(t, err, unix.ENOENT)
		_, err = unix.Openat(int(d.Fd()), "new", unix.O_CREAT|unix.O_WRONLY, 0o644)
		wantErrno(t, err, unix.ENOENT)
	})
}

func TestTmpfile(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		fd, err := unix.Open(p.dir, unix.O_TMPFILE|unix.O_RDWR, 0o600)
		if err != nil && !p.isTmpfs() {
			// Refused completely, as documented in docs/semantics.md.
			wantErrno(t, err, unix.EOPNOTSUPP)
			return
		}
		must(t, err)
		must(t, unix.Close(fd))
	})
}

func fstat(t testing.TB, f *os.File) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatalf("fstat: %v", err)
	}
	return st
}

// writeRange writes a range of a content at its offset.
func writeRange(t testing.TB, f *os.File, seed uint64, off int64, n int) {
	t.Helper()
	if _, err := f.WriteAt(kit.Bytes(seed, off, n), off); err != nil {
		t.Fatal(err)
	}
}

// wantRange checks that a range of a file has the bytes of a content.
func wantRange(t testing.TB, f io.ReaderAt, seed uint64, off int64, n int) {
	t.Helper()
	got := readRange(t, f, off, n)
	if i := kit.DiffAt(got, seed, off); i >= 0 {
		t.Errorf("differs at %d from content %d", off+int64(i), seed)
	}
}

// wantZeros checks that a range of a file is zeros.
func wantZeros(t testing.TB, f io.ReaderAt, off int64, n int) {
	t.Helper()
	got := readRange(t, f, off, n)
	for i, b := range got {
		if b != 0 {
			t.Errorf("%#x at %d, want 0", b, off+int64(i))
			return
		}
	}
}

func readRange(t testing.TB, f io.ReaderAt, off int64, n int) []byte {
	t.Helper()
	got := make([]byte, n)
	if _, err := f.ReadAt(got, off); err != nil {
		t.Fatalf("read %d bytes at %d: %v", n, off, err)
	}
	return got
}

func wantContentOf(t testing.TB, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	if string(got) != want {
		t.Errorf("%s has %q, want %q", path, got, want)
	}
}
