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

// secretByte replaces the zeros in the content that must never be visible again, so that no
// byte of it is 0.
const secretByte = 0xa5

// oldBytesSize is the size of the devices of these tests.
const oldBytesSize = 24 << 20

// secrets returns n bytes that depend on their offset and are never 0.
func secrets(off int64, n int) []byte {
	p := kit.Bytes(1, off, n)
	for i := range p {
		if p[i] == 0 {
			p[i] = secretByte
		}
	}
	return p
}

// fillDevice fills the free space of a place with secrets and returns how many bytes fitted.
func fillDevice(t *testing.T, path string) int64 {
	t.Helper()
	const chunk = 1 << 20
	var off int64
	err := withFile(path, os.O_WRONLY|os.O_CREATE, func(f *os.File) error {
		for {
			n, err := f.WriteAt(secrets(off, chunk), off)
			if off += int64(n); err != nil {
				return err
			}
		}
	})
	wantErrno(t, err, unix.ENOSPC)
	return off
}

// wantOnlyZeros reads a whole file in pieces of an odd size.
func wantOnlyZeros(t *testing.T, path string) {
	t.Helper()
	f := open(t, path, os.O_RDONLY)
	defer func() { must(t, f.Close()) }()
	buf := make([]byte, 300_001)
	for off := int64(0); ; {
		n, err := f.ReadAt(buf, off)
		for i, b := range buf[:n] {
			if b != 0 {
				t.Fatalf("%s has %#x at %d, want 0", path, b, off+int64(i))
			}
		}
		off += int64(n)
		if err == io.EOF {
			return
		}
		must(t, err)
	}
}

// everyDevice runs a test on tmpfs and on one device of each kind, each of oldBytesSize.
func everyDevice(t *testing.T, fn func(t *testing.T, dir string)) {
	t.Helper()
	kit.Check(t)
	o := mnt.Options{Devices: []string{"host,size=24MiB", "sim:0,size=24MiB", "sim:1,size=24MiB,mapped=true"}}
	names := []string{"host", "sim0", "sim1"}
	if kit.Missing("opencl") == nil {
		o.Devices, names = append(o.Devices, "opencl:0,size=24MiB"), append(names, "ocl0")
	}
	m := mnt.Mount(t, o)
	tmpfs := mnt.Tmpfs(t, fmt.Sprint(oldBytesSize))
	t.Run("tmpfs", func(t *testing.T) { fn(t, openDir(t, tmpfs)) })
	for _, name := range names {
		t.Run(name, func(t *testing.T) { fn(t, openDir(t, m.Path(name))) })
	}
}

func TestBytesOfDeletedFilesAreNeverSeen(t *testing.T) {
	everyDevice(t, func(t *testing.T, dir string) {
		room := fillDevice(t, dir+"/secret")
		if room < oldBytesSize*3/4 {
			t.Errorf("only %d of %d bytes had room", room, oldBytesSize)
		}
		for what, make := range map[string]func(f *os.File, n int64) error{
			"sparse":    func(f *os.File, n int64) error { return f.Truncate(n) },
			"allocated": func(f *os.File, n int64) error { return fallocate(f, 0, 0, n) },
			"one byte at the end of each page": func(f *os.File, n int64) error {
				for off := int64(4095); off < n; off += 4096 * 16 {
					if _, err := f.WriteAt([]byte{0}, off); err != nil {
						return err
					}
				}
				return f.Truncate(n)
			},
			"kept size, then extended": func(f *os.File, n int64) error {
				if err := fallocate(f, unix.FALLOC_FL_KEEP_SIZE, 0, n); err != nil {
					return err
				}
				return f.Truncate(n)
			},
		} {
			if _, err := os.Stat(dir + "/secret"); err == nil {
				must(t, os.Remove(dir+"/secret"))
			}
			f, err := os.Create(dir + "/fresh")
			must(t, err)
			// The kernel may delay the release after a close: the memory of a removed file may
			// become free a moment later.
			soon(t, func() error { return make(f, room-room%4096) })
			must(t, f.Close())
			t.Log(what)
			wantOnlyZeros(t, dir+"/fresh")
			must(t, os.Remove(dir+"/fresh"))
			fillDevice(t, dir+"/secret")
		}
	})
}

// soon retries until there is space, which must be soon.
func soon(t *testing.T, try func() error) {
	t.Helper()
	kit.Eventually(t, mntPatience, try)
}

func TestBytesOfTruncatedAndPunchedFilesAreNeverSeen(t *testing.T) {
	const size = 3<<20 + 1234
	everyDevice(t, func(t *testing.T, dir string) {
		for what, lose := range map[string]func(f *os.File) error{
			"truncated": func(f *os.File) error {
				if err := f.Truncate(0); err != nil {
					return err
				}
				return f.Truncate(size)
			},
			"opened with O_TRUNC": func(f *os.File) error {
				if err := withFile(f.Name(), os.O_WRONLY|os.O_TRUNC, func(*os.File) error { return nil }); err != nil {
					return err
				}
				_, err := f.WriteAt([]byte{0}, size)
				return err
			},
			"punched": func(f *os.File) error { return fallocate(f, punchHole, 0, size) },
			"punched in odd pieces": func(f *os.File) error {
				for off := int64(0); off < size; off += 70_001 {
					if err := fallocate(f, punchHole, off, 70_001); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			f := open(t, dir+"/"+what, os.O_RDWR|os.O_CREATE)
			_, err := f.WriteAt(secrets(0, size), 0)
			must(t, err)
			must(t, lose(f))
			t.Log(what)
			wantOnlyZeros(t, f.Name())
			must(t, f.Close())
			wantOnlyZeros(t, f.Name())
			must(t, os.Remove(f.Name()))
		}
	})
}

func TestTailBehindTheEndIsZero(t *testing.T) {
	const size, short = 100_000, 50_001
	everyDevice(t, func(t *testing.T, dir string) {
		name := dir + "/a"
		f := open(t, name, os.O_RDWR|os.O_CREATE)
		_, err := f.WriteAt(secrets(0, size), 0)
		must(t, err)
		wantTail(t, f, size)
		must(t, f.Truncate(short))
		wantTail(t, f, short)
		// Truncated bytes do not return when the file grows, however it grows.
		must(t, f.Truncate(size))
		wantZeros(t, f, short, size-short)
		_, err = f.WriteAt(secrets(0, size), 0)
		must(t, err)
		must(t, f.Truncate(short))
		_, err = f.WriteAt([]byte{1}, size)
		must(t, err)
		wantZeros(t, f, short, size-short)
		must(t, f.Truncate(short))
		must(t, fallocate(f, 0, 0, size))
		wantZeros(t, f, short, size-short)
		must(t, f.Close())
		wantContentOfSecrets(t, name, short)
	})
}

// wantTail checks for zeros after the end of a file of the given size, in the last page of a
// map of it.
func wantTail(t *testing.T, f *os.File, size int) {
	t.Helper()
	for _, flags := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
		mem, err := unix.Mmap(int(f.Fd()), 0, (size+4095)&^4095, unix.PROT_READ, flags)
		must(t, err)
		if got, want := mem[:size], secrets(0, size); kit.FirstDiff(got, want) >= 0 {
			t.Errorf("the map differs at %d", kit.FirstDiff(got, want))
		}
		for i, b := range mem[size:] {
			if b != 0 {
				t.Errorf("%#x in the map %d bytes behind the end", b, i)
				break
			}
		}
		must(t, unix.Munmap(mem))
	}
}

// wantContentOfSecrets checks for secrets in the first n bytes of a file and zeros after them.
func wantContentOfSecrets(t *testing.T, name string, n int) {
	t.Helper()
	got, err := os.ReadFile(name)
	must(t, err)
	if i := kit.FirstDiff(got[:n], secrets(0, n)); i >= 0 {
		t.Errorf("differs at %d", i)
	}
	for i, b := range got[n:] {
		if b != 0 {
			t.Fatalf("%#x at %d", b, n+i)
		}
	}
}

func TestFullDevice(t *testing.T) {
	everyDevice(t, func(t *testing.T, dir string) {
		room := fillDevice(t, dir+"/full")
		got, err := os.ReadFile(dir + "/full")
		must(t, err)
		if int64(len(got)) != room || kit.FirstDiff(got, secrets(0, len(got))) >= 0 {
			t.Errorf("%d bytes, written %d, differ at %d", len(got), room, kit.FirstDiff(got, secrets(0, len(got))))
		}
		wantErrno(t, os.WriteFile(dir+"/more", []byte("x"), 0o644), unix.ENOSPC)
		must(t, os.Mkdir(dir+"/names-still-work", 0o755))
		// Space that a truncation frees can be used at once.
		must(t, os.Truncate(dir+"/full", room/2))
		soon(t, func() error { return os.WriteFile(dir+"/more", secrets(0, int(room/4)), 0o644) })
		must(t, os.Remove(dir+"/full"))
		must(t, os.Remove(dir+"/more"))
		soon(t, func() error {
			again := fillDevice(t, dir+"/full")
			if again < room-room/20 {
				return fmt.Errorf("room for %d bytes, after removal for %d", room, again)
			}
			return nil
		})
		must(t, os.Remove(dir+"/full"))
	})
}
