package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// TestTmpfsIsTheLimit fills the tier with files until the kernel refuses more, and checks
// that no memory can be allocated then.
func TestTmpfsIsTheLimit(t *testing.T) {
	d := open(t, options(t, ModeTmpfs), "host,size=8MiB")
	f, err := d.Files().Open(1, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err = d.Files().Reserve(devices.GiB); err != nil {
		t.Errorf("the kernel sets the limit, yet: %v", err)
	}
	n, err := f.Write(make([]byte, 9<<20))
	if !errors.Is(err, unix.ENOSPC) || n != 8<<20 {
		t.Errorf("%d bytes written, %v", n, err)
	}
	var oom *devices.OutOfMemoryError
	if _, err = d.Alloc(t.Context(), 1); !errors.As(err, &oom) || oom.Asked != 1 || oom.Free != 0 {
		t.Errorf("%v", err)
	}
	// An empty file needs no memory.
	empty, err := d.Files().Open(2, true)
	if err != nil {
		t.Fatal(err)
	}
	_ = empty.Close()
	if err = d.Files().Remove(1); err != nil {
		t.Error(err)
	}
	if err = f.Close(); err != nil {
		t.Error(err)
	}
	mem, err := d.Alloc(t.Context(), 8*devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.Release(); err != nil {
		t.Error(err)
	}
}

// TestQuotaIsTheLimit checks Reserve through writes, truncation and removal.
func TestQuotaIsTheLimit(t *testing.T) {
	d := open(t, options(t, ModeQuota), "host,size=8MiB")
	files := d.Files()
	yes := func(n devices.Size) {
		t.Helper()
		if err := files.Reserve(n); err != nil {
			t.Error(err)
		}
	}
	no := func(n devices.Size) {
		t.Helper()
		var oom *devices.OutOfMemoryError
		if err := files.Reserve(n); !errors.As(err, &oom) || oom.Asked != n {
			t.Errorf("%v", err)
		}
	}
	no(8*devices.MiB + 1)
	yes(3 * devices.MiB)
	write(t, d, 1, make([]byte, 3<<20))
	mem, err := d.Alloc(t.Context(), 4*devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	no(devices.MiB + 1)
	yes(devices.MiB)
	write(t, d, 2, make([]byte, 1<<20))
	no(1)
	if _, err := d.Alloc(t.Context(), 1); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("%v", err)
	}
	if err := files.Remove(1); err != nil {
		t.Error(err)
	}
	no(3*devices.MiB + 1)
	yes(3 * devices.MiB)
	if err := mem.Release(); err != nil {
		t.Error(err)
	}
	// Nothing of the last reservation was written: the next count drops it.
	yes(7 * devices.MiB)
	no(1 << 63)
	no(^devices.Size(0))
	if u, err := d.Usage(); err != nil || u.Used != devices.MiB {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestFilesAreCounted creates empty files up to the tier's limit.
func TestFilesAreCounted(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		o := options(t, mode)
		d := open(t, o, "host,size=1MiB")
		files := d.Files()
		make := func(id uint64) error {
			f, err := files.Open(id, true)
			if err != nil {
				return err
			}
			return f.Close()
		}
		n := uint64(0)
		err := make(0)
		for ; err == nil; err = make(n) {
			n++
		}
		if limit := filesFor(devices.MiB); !errors.Is(err, devices.ErrOutOfMemory) || n > limit || n < limit-16 {
			t.Errorf("%d files, of %d, and then %v", n, limit, err)
		}
		for id := range n / 2 {
			if err := files.Remove(id); err != nil {
				t.Fatal(err)
			}
		}
		for id := range n / 2 {
			if err := make(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := make(n); !errors.Is(err, devices.ErrOutOfMemory) {
			t.Errorf("one more: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		files = open(t, o, "host,size=1MiB").Files()
		if err := make(n); !errors.Is(err, devices.ErrOutOfMemory) {
			t.Errorf("one more, after the tier was opened again: %v", err)
		}
	})
}

func TestQuotaRace(t *testing.T) {
	d := open(t, options(t, ModeQuota), "host,size=8MiB")
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(50) {
				id := g*1000 + i
				f, err := d.Files().Open(id, true)
				if err != nil {
					t.Error(err)
					return
				}
				err = d.Files().Reserve(100000)
				if err == nil {
					_, err = f.Write(make([]byte, 100000))
				}
				if err != nil && !errors.Is(err, devices.ErrOutOfMemory) {
					t.Error(err)
				}
				if err := errors.Join(f.Close(), d.Files().Remove(id)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if u, err := d.Usage(); err != nil || u.Used != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestPrivate checks that no other user has access.
func TestPrivate(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		d := open(t, options(t, mode), "host,size=8MiB")
		write(t, d, 1, []byte("secret"))
		for path, want := range map[string]fs.FileMode{
			d.Path():                         fs.ModeDir | 0o700,
			filepath.Join(d.Path(), "files"): fs.ModeDir | 0o700,
			filepath.Join(d.Path(), "files", fileName(1)): 0o600,
		} {
			st, err := os.Stat(path)
			if err != nil || st.Mode() != want {
				t.Errorf("%s: %v, %v; want %v", path, st.Mode(), err, want)
			}
		}
		if mode == ModeTmpfs {
			var st unix.Statfs_t
			if err := unix.Statfs(d.Path(), &st); err != nil {
				t.Fatal(err)
			}
			const want = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
			if st.Flags&want != want {
				t.Errorf("mount flags %#x", st.Flags)
			}
		}
	})
}

// TestDestroyWithOpenFile removes the tier while a file of it is open, whose bytes stay
// readable.
func TestDestroyWithOpenFile(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		d := open(t, options(t, mode), "host,size=8MiB")
		write(t, d, 1, []byte("still here"))
		f, err := d.Files().Open(1, false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := d.Destroy(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "still here" {
			t.Errorf("%q, %v", buf, err)
		}
		if _, err := os.Lstat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}

func TestFilesAfterClose(t *testing.T) {
	d := open(t, options(t, ModeQuota), "host,size=8MiB")
	files := d.Files()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, openErr := files.Open(1, true)
	for what, err := range map[string]error{
		"open": openErr, "remove": files.Remove(1), "reserve": files.Reserve(1),
		"each": files.Each(func(uint64) error { return nil }),
	} {
		if !errors.Is(err, devices.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFileNames(t *testing.T) {
	for name, want := range map[string]bool{
		"0000000000000000": true, "00000000000003f2": true, "ffffffffffffffff": true,
		"00000000000003F2": false, "3f2": false, "": false, "00000000000003f2.bak": false, "+00000000000003f": false,
	} {
		if _, ok := fileID(name); ok != want {
			t.Errorf("fileID(%q) = %v", name, ok)
		}
	}
}

func TestDefaultSizeAndDiscover(t *testing.T) {
	found, err := NewDriver(Options{}).Discover(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	total := found[0].Info.Total
	if size, err := defaultSize(); err != nil || size == 0 || size > total/2 || size%4096 != 0 {
		t.Errorf("default size %d of %d, %v", uint64(size), uint64(total), err)
	}
	bad := filepath.Join(t.TempDir(), "meminfo")
	if err := os.WriteFile(bad, []byte("MemFree: 12 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readMemInfo(bad); err == nil {
		t.Error("nonsense was read as memory")
	}
}
