package tests

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStatxOfSpecialFiles(t *testing.T) {
	withoutUmask(t)
	everywhere(t, func(t *testing.T, p place) {
		started := time.Now().Add(-time.Minute)
		dev := unix.Mkdev(11, 70_000)
		must(t, unix.Mkfifo(p.path("fifo"), 0o640))
		must(t, unix.Mknod(p.path("char"), unix.S_IFCHR|0o620, int(dev)))
		must(t, unix.Mknod(p.path("block"), unix.S_IFBLK|0o600, int(dev)))
		must(t, unix.Mknod(p.path("sock"), unix.S_IFSOCK|0o666, 0))
		must(t, os.Symlink("some/target", p.path("link")))
		must(t, os.Mkdir(p.path("dir"), 0o750))
		must(t, os.Mkdir(p.path("dir", "below"), 0o750))
		create(t, p.path("file"), 1, 5000)
		must(t, os.Link(p.path("fifo"), p.path("fifo2")))
		for name, want := range map[string]struct {
			mode  uint16
			nlink uint32
			size  uint64
			rdev  bool
		}{
			"fifo":  {unix.S_IFIFO | 0o640, 2, 0, false},
			"char":  {unix.S_IFCHR | 0o620, 1, 0, true},
			"block": {unix.S_IFBLK | 0o600, 1, 0, true},
			"sock":  {unix.S_IFSOCK | 0o666, 1, 0, false},
			"link":  {unix.S_IFLNK | 0o777, 1, 11, false},
			"dir":   {unix.S_IFDIR | 0o750, 3, 0, false},
			"file":  {unix.S_IFREG | 0o666&^0o022, 1, 5000, false},
		} {
			var st unix.Statx_t
			must(t, unix.Statx(unix.AT_FDCWD, p.path(name), unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_FORCE_SYNC,
				unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st))
			if st.Mode != want.mode || st.Nlink != want.nlink {
				t.Errorf("%s: mode %o, %d links, want %o, %d", name, st.Mode, st.Nlink, want.mode, want.nlink)
			}
			if st.Size != want.size && name != "dir" {
				t.Errorf("%s: size %d, want %d", name, st.Size, want.size)
			}
			if want.rdev && (st.Rdev_major != 11 || st.Rdev_minor != 70_000) {
				t.Errorf("%s: device %d:%d", name, st.Rdev_major, st.Rdev_minor)
			}
			if st.Mask&unix.STATX_BASIC_STATS != unix.STATX_BASIC_STATS {
				t.Errorf("%s: mask %#x", name, st.Mask)
			}
			if st.Mask&unix.STATX_BTIME == 0 || time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)).Before(started) {
				t.Errorf("%s: no time of birth: mask %#x, %v", name, st.Mask, st.Btime)
			}
			wantSameAsStat(t, p.path(name), &st)
		}
	})
}

// wantSameAsStat checks that stat and statx agree.
func wantSameAsStat(t *testing.T, path string, st *unix.Statx_t) {
	t.Helper()
	plain := lstat(t, path)
	if plain.Ino != st.Ino || plain.Mode != uint32(st.Mode) || uint64(plain.Size) != st.Size ||
		plain.Mtim.Nano() != st.Mtime.Sec*1e9+int64(st.Mtime.Nsec) || plain.Blocks != int64(st.Blocks) {
		t.Errorf("%s: stat %+v\nstatx %+v", path, plain, st)
	}
}

func TestFifoCarriesBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		must(t, unix.Mkfifo(p.path("fifo"), 0o600))
		// Opened for both reading and writing, it does not block.
		f := open(t, p.path("fifo"), os.O_RDWR)
		if _, err := f.WriteString("through"); err != nil {
			t.Fatal(err)
		}
		var b [7]byte
		if _, err := f.Read(b[:]); err != nil || string(b[:]) != "through" {
			t.Errorf("got %q, %v", b, err)
		}
		must(t, f.Close())
	})
}

func TestUnixSocket(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		t.Chdir(p.dir) // the path of a socket must be short
		l, err := net.Listen("unix", "sock")
		must(t, err)
		served := make(chan error, 1)
		go func() {
			served <- greet(l)
		}()
		c, err := net.Dial("unix", "sock")
		must(t, err)
		var b [5]byte
		if _, err := c.Read(b[:]); err != nil || string(b[:]) != "hello" {
			t.Errorf("got %q, %v", b, err)
		}
		must(t, c.Close())
		must(t, <-served)
		must(t, l.Close())
		if _, err := os.Lstat(p.path("sock")); !os.IsNotExist(err) {
			t.Errorf("the closed socket: %v", err)
		}
	})
}

// greet serves one connection.
func greet(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = c.Write([]byte("hello"))
	return errors.Join(err, c.Close())
}

func TestHardLinksWithinADevice(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 5000)
		must(t, os.Mkdir(p.path("d"), 0o755))
		must(t, os.Link(p.path("a"), p.path("d", "b")))
		if a, b := lstat(t, p.path("a")), lstat(t, p.path("d", "b")); a.Ino != b.Ino || a.Nlink != 2 || b.Nlink != 2 {
			t.Errorf("inodes %d and %d, %d and %d links", a.Ino, b.Ino, a.Nlink, b.Nlink)
		}
		must(t, os.WriteFile(p.path("d", "b"), []byte("changed"), 0o644))
		wantContentOf(t, p.path("a"), "changed")
		wantErrno(t, os.Link(p.path("d"), p.path("e")), unix.EPERM)
		wantErrno(t, os.Link(p.path("a"), p.path("d", "b")), unix.EEXIST)
		must(t, os.Remove(p.path("a")))
		wantContentOf(t, p.path("d", "b"), "changed")
		if p.m != nil {
			other := map[bool]string{true: "host", false: "sim0"}[p.name == "sim0"]
			wantErrno(t, os.Link(p.path("d", "b"), p.m.Path(other, "c")), unix.EXDEV)
		}
	})
}
