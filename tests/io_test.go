package tests

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

func TestFallocateModes(t *testing.T) {
	const size = 100_000
	everywhere(t, func(t *testing.T, p place) {
		f := open(t, p.path("a"), os.O_RDWR|os.O_CREATE)
		writeRange(t, f, 1, 0, size)
		must(t, fallocate(f, 0, size, size))
		if st := fstat(t, f); st.Size != 2*size || st.Blocks*512 < 2*size {
			t.Errorf("size %d, %d blocks", st.Size, st.Blocks)
		}
		wantZeros(t, f, size, size)
		must(t, fallocate(f, unix.FALLOC_FL_KEEP_SIZE, 0, 10*size))
		if st := fstat(t, f); st.Size != 2*size {
			t.Errorf("size %d", st.Size)
		}
		must(t, fallocate(f, punchHole, 5000, 50_000))
		wantRange(t, f, 1, 0, 5000)
		wantZeros(t, f, 5000, 50_000)
		wantRange(t, f, 1, 55_000, size-55_000)
		zeroRange(t, p, f, size)
		wantErrno(t, fallocate(f, unix.FALLOC_FL_PUNCH_HOLE, 0, 100), unix.EOPNOTSUPP)
		wantErrno(t, fallocate(f, unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096), unix.EOPNOTSUPP)
		wantErrno(t, fallocate(f, unix.FALLOC_FL_INSERT_RANGE, 0, 4096), unix.EOPNOTSUPP)
		wantErrno(t, fallocate(f, 0, 0, 0), unix.EINVAL)
		wantErrno(t, fallocate(f, 0, -1, 10), unix.EINVAL)
		wantErrno(t, fallocate(f, 0, 0, 1<<40), unix.ENOSPC)
		if st := fstat(t, f); st.Size != 2*size {
			t.Errorf("size %d after an allocation that failed", st.Size)
		}
		must(t, f.Close())
	})
}

// zeroRange tries FALLOC_FL_ZERO_RANGE, which tmpfs does not support.
func zeroRange(t *testing.T, p place, f *os.File, size int) {
	t.Helper()
	err := fallocate(f, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, 60_000, 1000)
	if p.isTmpfs() {
		wantErrno(t, err, unix.EOPNOTSUPP)
		return
	}
	must(t, err)
	wantZeros(t, f, 60_000, 1000)
	wantRange(t, f, 1, 61_000, size-61_000)
	must(t, fallocate(f, unix.FALLOC_FL_ZERO_RANGE, 0, 1000))
	wantZeros(t, f, 0, 1000)
	wantRange(t, f, 1, 1000, 4000)
}

func TestSeekDataAndHole(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const mib = 1 << 20
		f := open(t, p.path("a"), os.O_RDWR|os.O_CREATE)
		must(t, f.Truncate(8*mib))
		writeRange(t, f, 1, 2*mib, mib)
		writeRange(t, f, 1, 5*mib, mib)
		for _, tc := range []struct {
			whence    int
			off, want int64
		}{
			{unix.SEEK_DATA, 0, 2 * mib},
			{unix.SEEK_HOLE, 0, 0},
			{unix.SEEK_DATA, 2*mib + 7, 2*mib + 7},
			{unix.SEEK_HOLE, 2*mib + 7, 3 * mib},
			{unix.SEEK_DATA, 3 * mib, 5 * mib},
			{unix.SEEK_HOLE, 5 * mib, 6 * mib},
			{unix.SEEK_HOLE, 7 * mib, 7 * mib},
			{unix.SEEK_HOLE, 8*mib - 1, 8*mib - 1},
		} {
			got, err := unix.Seek(int(f.Fd()), tc.off, tc.whence)
			if err != nil || got != tc.want {
				t.Errorf("seek(%d, %d) = %d, %v, want %d", tc.off, tc.whence, got, err, tc.want)
			}
		}
		for _, tc := range []struct {
			whence int
			off    int64
		}{{unix.SEEK_DATA, 6 * mib}, {unix.SEEK_DATA, 8 * mib}, {unix.SEEK_HOLE, 8 * mib}, {unix.SEEK_DATA, 9 * mib}} {
			_, err := unix.Seek(int(f.Fd()), tc.off, tc.whence)
			wantErrno(t, err, unix.ENXIO)
		}
		must(t, fallocate(f, punchHole, 2*mib, mib))
		if got, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA); err != nil || got != 5*mib {
			t.Errorf("after punching the first data is at %d, %v", got, err)
		}
		if st := fstat(t, f); st.Blocks*512 > 2*mib || st.Blocks*512 < mib {
			t.Errorf("1 MiB of data takes %d bytes", st.Blocks*512)
		}
		must(t, f.Close())
	})
}

// TestSeekInPreallocatedMemory writes single pages, and a few bytes of one, of memory that was
// allocated in advance: what was never written is a hole.
func TestSeekInPreallocatedMemory(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const page = 4096
		f := open(t, p.path("a"), os.O_RDWR|os.O_CREATE)
		must(t, fallocate(f, 0, 0, 64*page))
		writeRange(t, f, 1, 10*page, page)
		writeRange(t, f, 1, 2*page, page)
		writeRange(t, f, 1, 30*page+100, 50)
		writeRange(t, f, 1, 3*page, page)
		for _, tc := range []struct {
			whence    int
			off, want int64
		}{
			{unix.SEEK_HOLE, 0, 0},
			{unix.SEEK_DATA, 0, 2 * page},
			{unix.SEEK_HOLE, 2 * page, 4 * page},
			{unix.SEEK_DATA, 4 * page, 10 * page},
			{unix.SEEK_HOLE, 10 * page, 11 * page},
			{unix.SEEK_DATA, 11 * page, 30 * page},
			{unix.SEEK_HOLE, 31 * page, 31 * page},
			{unix.SEEK_HOLE, 63 * page, 63 * page},
		} {
			got, err := unix.Seek(int(f.Fd()), tc.off, tc.whence)
			if err != nil || got != tc.want {
				t.Errorf("seek(%d, %d) = %d, %v, want %d", tc.off, tc.whence, got, err, tc.want)
			}
		}
		_, err := unix.Seek(int(f.Fd()), 31*page, unix.SEEK_DATA)
		wantErrno(t, err, unix.ENXIO)
		wantZeros(t, f, 0, 2*page)
		wantRange(t, f, 1, 2*page, 2*page)
		wantZeros(t, f, 4*page, 6*page)
		wantRange(t, f, 1, 10*page, page)
		wantZeros(t, f, 11*page, 19*page+100)
		wantRange(t, f, 1, 30*page+100, 50)
		wantZeros(t, f, 30*page+150, 33*page)
		if st := fstat(t, f); st.Blocks*512 != 64*page {
			t.Errorf("%d bytes are taken", st.Blocks*512)
		}
		must(t, f.Close())
	})
}

// usedBy returns the number of bytes used on a device.
func usedBy(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(path, &st))
	return (st.Blocks - st.Bfree) * uint64(st.Frsize)
}

func TestStatfsTellsTheDevice(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=32MiB", "sim:0,size=64MiB", "sim:1,size=16MiB"}})
	create(t, m.Path("sim0", "a"), 1, 10<<20)
	// The kernel sends the release after close has returned: only then is preallocated memory
	// freed.
	kit.Eventually(t, time.Minute, func() bool { return usedBy(t, m.Path("sim0")) <= 12<<20 })
	for name, want := range map[string]struct{ total, used uint64 }{
		"host": {32 << 20, 0}, "sim0": {64 << 20, 10 << 20}, "sim1": {16 << 20, 0},
	} {
		for _, path := range []string{m.Path(name), m.Path(name, "a")} {
			var st unix.Statfs_t
			if err := unix.Statfs(path, &st); err != nil {
				continue // only sim0 has a file a
			}
			size := uint64(st.Frsize)
			total, used := st.Blocks*size, (st.Blocks-st.Bfree)*size
			if total != want.total || used < want.used || used > want.used+2<<20 {
				t.Errorf("%s: %d of %d bytes used, want %d of %d", path, used, total, want.used, want.total)
			}
			if st.Namelen != 255 || st.Bavail > st.Bfree {
				t.Errorf("%s: %+v", path, st)
			}
		}
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(m.Dir, &st))
	if out, err := exec.Command("df", m.Path("sim0"), m.Path("host")).CombinedOutput(); err != nil {
		t.Errorf("df: %v: %s", err, out)
	}
}

func TestTruncatingOpenAndAppend(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 100_000)
		create(t, p.path("a"), 2, 5) // os.WriteFile truncates
		wantContent(t, p.path("a"), 2, 5)
		must(t, withFile(p.path("a"), os.O_WRONLY|os.O_APPEND, func(f *os.File) error {
			if _, err := f.Write(kit.Bytes(2, 5, 100)); err != nil {
				return err
			}
			_, err := f.Write(kit.Bytes(2, 105, 100))
			return err
		}))
		wantContent(t, p.path("a"), 2, 205)
		wantErrno(t, withFile(p.dir, os.O_WRONLY, nil), unix.EISDIR)
		wantErrno(t, withFile(p.path("a", "b"), os.O_RDONLY, nil), unix.ENOTDIR)
		wantErrno(t, withFile(p.path("a"), os.O_RDONLY|unix.O_DIRECTORY, nil), unix.ENOTDIR)
	})
}

func TestDirectIO(t *testing.T) {
	const size = 1 << 20
	everywhere(t, func(t *testing.T, p place) {
		buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		must(t, err)
		kit.FillAt(buf, 1, 0)
		must(t, withFile(p.path("a"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, func(f *os.File) error {
			if _, err := f.WriteAt(buf, 0); err != nil {
				return err
			}
			if _, err := f.ReadAt(buf[:size/2], size/2); err != nil {
				return err
			}
			if i := kit.DiffAt(buf[:size/2], 1, size/2); i >= 0 {
				t.Errorf("differs at %d", i)
			}
			return nil
		}))
		wantContent(t, p.path("a"), 1, size)
		must(t, unix.Munmap(buf))
	})
}

func TestSharedMapsAndFilesAgree(t *testing.T) {
	const size = 1<<20 + 500
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, size)
		f := open(t, p.path("a"), os.O_RDWR)
		shared, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		private, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		must(t, err)
		if i := kit.DiffAt(shared, 1, 0); i >= 0 {
			t.Errorf("the map differs at %d", i)
		}
		kit.FillAt(shared[100_000:200_000], 2, 100_000)
		kit.FillAt(private[:50_000], 3, 0)
		must(t, unix.Msync(shared, unix.MS_SYNC))
		wantRange(t, f, 1, 0, 100_000)
		wantRange(t, f, 2, 100_000, 100_000)
		// A write is visible in the map.
		writeRange(t, f, 4, 300_000, 100_000)
		if i := kit.DiffAt(shared[300_000:400_000], 4, 300_000); i >= 0 {
			t.Errorf("the map does not have what was written: differs at %d", i)
		}
		if i := kit.DiffAt(private[:50_000], 3, 0); i >= 0 {
			t.Errorf("the private map has lost a store at %d", i)
		}
		must(t, unix.Munmap(shared))
		must(t, unix.Munmap(private))
		must(t, f.Close())
		g := open(t, p.path("a"), os.O_RDONLY)
		wantRange(t, g, 1, 0, 100_000)
		wantRange(t, g, 2, 100_000, 100_000)
		wantRange(t, g, 4, 300_000, 100_000)
		must(t, g.Close())
	})
}

func TestStoresInAMapOutliveItsFile(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 50_000)
		f := open(t, p.path("a"), os.O_RDWR)
		mem, err := unix.Mmap(int(f.Fd()), 0, 50_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		must(t, f.Close()) // the map remains
		kit.FillAt(mem, 2, 0)
		must(t, unix.Munmap(mem))
		wantContent(t, p.path("a"), 2, 50_000)
	})
}

func TestReadingPastTheEndOfAMapIsSIGBUS(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 4096)
		script := fmt.Sprintf("import mmap,os\nf=os.open(%q,os.O_RDWR)\nm=mmap.mmap(f,4096)\nos.ftruncate(f,0)\nm[0]", p.path("a"))
		kit.Require(t, "tool:python3")
		err := exec.Command("python3", "-c", script).Run()
		if err == nil {
			t.Error("a page behind the end of the file was read")
		}
	})
}

func TestFsync(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		f := open(t, p.path("a"), os.O_RDWR|os.O_CREATE)
		writeRange(t, f, 1, 0, 5000)
		must(t, f.Sync())
		must(t, unix.Fdatasync(int(f.Fd())))
		must(t, unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE))
		d := open(t, p.dir, os.O_RDONLY)
		must(t, d.Sync())
		must(t, unix.Syncfs(int(d.Fd())))
		must(t, f.Close())
		must(t, d.Close())
	})
}

func TestLocksBetweenOpenFiles(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a, b := open(t, p.path("l"), os.O_RDWR|os.O_CREATE), open(t, p.path("l"), os.O_RDWR)
		must(t, unix.Flock(int(a.Fd()), unix.LOCK_EX|unix.LOCK_NB))
		wantErrno(t, unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
		must(t, unix.Flock(int(a.Fd()), unix.LOCK_SH|unix.LOCK_NB))
		must(t, unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB))
		must(t, unix.Flock(int(a.Fd()), unix.LOCK_UN))
		must(t, unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB))
		must(t, unix.Flock(int(b.Fd()), unix.LOCK_UN))
		lock := func(f *os.File, kind int16, from, n int64) error {
			return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: from, Len: n})
		}
		must(t, lock(a, unix.F_WRLCK, 100, 50))
		wantErrno(t, lock(b, unix.F_RDLCK, 149, 10), unix.EAGAIN)
		must(t, lock(b, unix.F_WRLCK, 150, 10))
		must(t, lock(a, unix.F_UNLCK, 0, 0))
		waited := make(chan error, 1)
		must(t, lock(a, unix.F_WRLCK, 0, 10))
		go func() {
			waited <- unix.FcntlFlock(b.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Len: 10})
		}()
		must(t, a.Close()) // releases the lock
		must(t, <-waited)
		must(t, b.Close())
	})
}

func TestLocksOfProcesses(t *testing.T) {
	kit.Require(t, "tool:python3")
	everywhere(t, func(t *testing.T, p place) {
		f := open(t, p.path("l"), os.O_RDWR|os.O_CREATE)
		must(t, unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 10}))
		const script = "import fcntl,os,sys\nf=os.open(sys.argv[1],os.O_RDWR)\nfcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,10)"
		if err := exec.Command("python3", "-c", script, p.path("l")).Run(); err == nil {
			t.Error("another process got the lock too")
		}
		must(t, unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Len: 10}))
		if out, err := exec.Command("python3", "-c", script, p.path("l")).CombinedOutput(); err != nil {
			t.Errorf("a lock that was given back: %v: %s", err, out)
		}
		must(t, f.Close())
	})
}

func TestVectoredAndOverlappingIO(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		f := open(t, p.path("a"), os.O_RDWR|os.O_CREATE)
		whole := kit.Bytes(1, 0, 300_000)
		n, err := unix.Pwritev(int(f.Fd()), [][]byte{whole[:1], whole[1:70_000], whole[70_000:]}, 0)
		if err != nil || n != len(whole) {
			t.Errorf("pwritev: %d, %v", n, err)
		}
		parts := [][]byte{make([]byte, 33), make([]byte, 200_000), make([]byte, 200_000)}
		n, err = unix.Preadv(int(f.Fd()), parts, 0)
		if err != nil || n != len(whole) {
			t.Errorf("preadv: %d, %v", n, err)
		}
		if kit.DiffAt(parts[0], 1, 0) >= 0 || kit.DiffAt(parts[1], 1, 33) >= 0 || kit.DiffAt(parts[2][:99_967], 1, 200_033) >= 0 {
			t.Error("preadv read other bytes")
		}
		// A copy onto itself behaves as memmove.
		from, to := int64(0), int64(100_000)
		if _, err := unix.CopyFileRange(int(f.Fd()), &from, int(f.Fd()), &to, 100_000, 0); err != nil {
			t.Error(err)
		}
		if i := kit.DiffAt(readRange(t, f, 100_000, 100_000), 1, 0); i >= 0 {
			t.Errorf("the copy differs at %d", i)
		}
		must(t, f.Close())
	})
}

func TestConcurrentReadersAndWriters(t *testing.T) {
	const workers, each, span = 8, 30, 64 << 10
	everywhere(t, func(t *testing.T, p place) {
		f := open(t, p.path("a"), os.O_RDWR|os.O_CREATE)
		must(t, f.Truncate(workers*span))
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				off := int64(w) * span
				for n := range each {
					buf := kit.Bytes(uint64(n), off, span)
					if _, err := f.WriteAt(buf, off); err != nil {
						t.Error(err)
						return
					}
					if _, err := f.ReadAt(buf, off); err != nil {
						t.Error(err)
						return
					}
					if i := kit.DiffAt(buf, uint64(n), off); i >= 0 {
						t.Errorf("worker %d, round %d: differs at %d", w, n, i)
					}
				}
			})
		}
		wg.Wait()
		wantContent(t, p.path("a"), each-1, workers*span)
		must(t, f.Close())
	})
}
