package tests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// familyOf returns the family of memory bound in a directory.
func familyOf(name string) string { return strings.TrimRight(name, "0123456789") }

// elsewhereOf returns another device's directory.
func elsewhereOf(name string) string {
	if name == "host" {
		return "sim0"
	}
	return "host"
}

// onBoth runs a test in a directory of the host tier, both with and without passthrough, and
// of a simulated device.
func onBoth(t *testing.T, fn func(t *testing.T, p place)) {
	t.Helper()
	kit.Check(t)
	devices := []string{"host,size=64MiB", "sim:0,size=64MiB", "sim:1,size=64MiB,mapped=true"}
	m := mnt.Mount(t, mnt.Options{AllowOther: true, Devices: devices})
	other := mnt.Mount(t, mnt.Options{AllowOther: true, Devices: devices, Extra: []string{"--passthrough", "off"}})
	for _, p := range []place{{name: "host", m: m}, {name: "sim0", m: m}, {name: "sim1", m: m}, {name: "host", m: other}} {
		p.dir = openDir(t, p.m.Path(p.name))
		name := p.name
		if p.m == other {
			name += "-daemon"
		}
		t.Run(name, func(t *testing.T) { fn(t, p) })
	}
}

// The file is the memory: each side reads at once what the other writes.
func TestBoundFileIsTheMemory(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 3<<20 + 4096
		o, f := newBound(t, p, n)
		wantXattr(t, f, "user.hmc.state", "bound")
		if st := lstat(t, f); st.Size != n || st.Blocks*512 < n {
			t.Errorf("size %d, %d blocks", st.Size, st.Blocks)
		}
		wantContent(t, f, 1, n)
		h := open(t, f, os.O_RDWR)
		readWhileStored(t, h, o.bytes, 5)
		_, err := h.WriteAt(kit.Bytes(7, 100, n-200), 100)
		must(t, err)
		if i := kit.DiffAt(o.bytes[100:n-100], 7, 100); i >= 0 {
			t.Errorf("byte %d is not what was written through the mount", i)
		}
		if i := kit.DiffAt(o.bytes[:100], 5, 0); i >= 0 {
			t.Errorf("byte %d before the write has changed", i)
		}
	})
}

// readWhileStored reads a file from start to end repeatedly, as cat does, while its memory
// changes after each read: bytes that were read ahead before are stale. In the end the memory
// has the content of the seed last.
func readWhileStored(t *testing.T, h *os.File, memory []byte, last uint64) {
	t.Helper()
	const request = 128 << 10
	got := make([]byte, request)
	seed := last
	for range 3 {
		for off := 0; off+request <= len(memory); off += request {
			seed++
			kit.FillAt(memory, seed, 0)
			_, err := h.ReadAt(got, int64(off))
			must(t, err)
			if i := kit.DiffAt(got, seed, int64(off)); i >= 0 {
				t.Fatalf("byte %d is not what was stored last", off+i)
			}
		}
	}
	kit.FillAt(memory, last, 0)
}

// The size of a bound object is fixed to that of its memory.
func TestBoundFileHasAFixedSize(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 64 << 10
		o, f := newBound(t, p, n)
		for _, size := range []int64{0, 1, n - 1, n + 1, 1 << 40} {
			wantErrno(t, unix.Truncate(f, size), unix.EBUSY)
		}
		must(t, unix.Truncate(f, n))
		_, err := os.OpenFile(f, os.O_RDWR|os.O_TRUNC, 0)
		wantErrno(t, err, unix.EBUSY)
		h := open(t, f, os.O_RDWR)
		wantErrno(t, fallocate(h, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096), unix.EBUSY)
		wantErrno(t, fallocate(h, 0, 0, n+1), unix.ENOSPC)
		must(t, fallocate(h, 0, 0, n))
		must(t, fallocate(h, unix.FALLOC_FL_ZERO_RANGE, 1000, 5000))
		if !bytes.Equal(o.bytes[1000:6000], make([]byte, 5000)) || kit.DiffAt(o.bytes[6000:], 1, 6000) >= 0 {
			t.Error("zeroing a range has not zeroed that of the owner")
		}
		written, err := unix.Pwrite(int(h.Fd()), kit.Bytes(2, n-10, 4096), n-10)
		must(t, err)
		if written != 10 || kit.DiffAt(o.bytes[n-10:], 2, n-10) >= 0 {
			t.Errorf("%d of the 10 bytes that fit were written", written)
		}
		_, err = h.WriteAt([]byte("x"), n)
		wantErrno(t, err, unix.ENOSPC)
		if st := lstat(t, f); st.Size != n {
			t.Errorf("size is %d now", st.Size)
		}
	})
}

// Several pieces make one object, which is copied, linked and renamed like any other.
func TestBoundPiecesMakeOneFile(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		o := newMemOwner(t, 0, 1, 1<<20)
		f, g := p.path("f"), p.path("g")
		bindFile(t, f, o.value(familyOf(p.name), o.piece(512<<10, 100_000), o.piece(0, 5), o.piece(4096, 300_000)))
		wantXattr(t, f, "user.hmc.blobs", "100000,5,300000")
		want := append(append(bytes.Clone(o.bytes[512<<10:][:100_000]), o.bytes[:5]...), o.bytes[4096:][:300_000]...)
		for _, path := range []string{f, g} {
			got, err := os.ReadFile(path)
			must(t, err)
			if i := kit.FirstDiff(got, want); i >= 0 {
				t.Errorf("%s: byte %d is wrong", path, i)
			}
			if path == f {
				must(t, os.Rename(f, g))
				must(t, os.Link(g, f))
				must(t, os.Remove(f))
			}
		}
		elsewhere := p.m.Path(elsewhereOf(p.name), "copy")
		wantErrno(t, unix.Rename(g, elsewhere), unix.EXDEV)
		run(t, "cp", g, elsewhere)
		run(t, "cmp", g, elsewhere)
		run(t, "mv", g, elsewhere) // copies, and unbinds the source
		got, err := os.ReadFile(elsewhere)
		must(t, err)
		if i := kit.FirstDiff(got, want); i >= 0 {
			t.Errorf("the moved file: byte %d is wrong", i)
		}
		wantXattr(t, elsewhere, "user.hmc.state", "live")
		if kit.DiffAt(o.bytes, 1, 0) >= 0 {
			t.Error("the owner's bytes have changed by unbinding")
		}
		must(t, os.Remove(elsewhere))
	})
}

// When the owner ends, every user of the file gets an error, including those that have it
// open.
func TestOwnerEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		o, f := newBound(t, p, n)
		h := open(t, f, os.O_RDWR)
		view, merr := unix.Mmap(int(h.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
		must(t, merr)
		defer func() { must(t, unix.Munmap(view)) }()
		if i := kit.DiffAt(view, 1, 0); i >= 0 {
			t.Errorf("byte %d of a map is wrong", i)
		}
		reading := make(chan error, 1)
		go func() { reading <- readUntilError(h) }()
		o.kill()
		select {
		case err := <-reading:
			wantErrno(t, err, unix.EIO)
		case <-time.After(mntPatience):
			t.Fatal("a reader does not hear of the owner's end")
		}
		_, err := h.ReadAt(make([]byte, 10), 0)
		wantErrno(t, err, unix.EIO)
		_, err = h.WriteAt(make([]byte, 10), 0)
		wantErrno(t, err, unix.EIO)
		kit.Eventually(t, mntPatience, func() bool { return !canRead(t, view) })
		_, err = os.ReadFile(f)
		wantErrno(t, err, unix.EIO)
		kit.Eventually(t, 20*time.Second, func() error {
			state, xerr := getxattr(f, "user.hmc.state")
			if state == "lost" {
				return nil
			}
			return errors.Join(errors.New("state is "+state), xerr)
		})
		wantNoXattr(t, f, bindXattr)
		rel, err := filepath.Rel(p.m.Dir, f)
		must(t, err)
		kit.Eventually(t, 20*time.Second, func() bool { // the record is updated after the bytes
			out, _ := p.m.Run("fsck", p.m.Dir)
			return strings.Contains(out, rel)
		})
		checkFsck(t, p.m, []string{rel})
		must(t, h.Close())
		create(t, f, 9, 5000) // truncated to zero, it is a file like any other
		wantContent(t, f, 9, 5000)
		wantXattr(t, f, "user.hmc.state", "live")
	})
}

// canRead reports whether mapped memory is readable. It passes the memory to a system call,
// since a direct access would be a SIGBUS.
func canRead(t *testing.T, view []byte) bool {
	t.Helper()
	var pipe [2]int
	must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	_, err := unix.Write(pipe[1], view[:10])
	must(t, errors.Join(unix.Close(pipe[0]), unix.Close(pipe[1])))
	if err != nil {
		wantErrno(t, err, unix.EFAULT)
	}
	return err == nil
}

func readUntilError(h *os.File) error {
	p := make([]byte, 256<<10)
	for off := int64(0); ; off = (off + int64(len(p))) % (1 << 20) {
		if _, err := h.ReadAt(p, off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// After the death of the daemon, memory that still exists is bound again, whatever number its
// owner's descriptor has by then, and other objects are lost: never zeros, never another's
// bytes.
func TestBoundFilesAfterADeath(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		family := familyOf(p.name)
		lives, ends, moved := newMemOwner(t, 0, 1, n), newMemOwner(t, 0, 2, n), newMemOwner(t, 0, 3, n)
		bindFile(t, p.path("lives"), lives.value(family, lives.piece(0, n/2), lives.piece(n/2, n/2)))
		bindFile(t, p.path("ends"), ends.value(family, ends.piece(0, n)))
		stays, replaced := filepath.Join(shmDir(t), "stays"), filepath.Join(shmDir(t), "replaced")
		create(t, stays, 4, n)
		create(t, replaced, 5, n)
		bindFile(t, p.path("path"), bindValue(family, 0, pathPiece(stays, n)))
		bindFile(t, p.path("replaced"), bindValue(family, 0, pathPiece(replaced, n)))
		bindFile(t, p.path("nobody"), bindValue(family, 0, pathPiece(moved.path(), n)))
		if r := mustXattr(t, p.path("lives"), bindXattr); !strings.Contains(r, `"pid"`) {
			t.Errorf("bound to %s", r)
		}
		p.m.Kill()
		ends.kill()
		create(t, replaced+"2", 9, n)
		must(t, os.Rename(replaced+"2", replaced))
		p.m.Start()
		wantContent(t, p.path("lives"), 1, n)
		wantXattr(t, p.path("lives"), "user.hmc.state", "bound")
		kit.FillAt(lives.bytes, 11, 0)
		wantContent(t, p.path("lives"), 11, n)
		wantContent(t, p.path("path"), 4, n)
		wantContent(t, p.path("nobody"), 3, n)
		for _, name := range []string{"ends", "replaced"} {
			_, err := os.ReadFile(p.path(name))
			wantErrno(t, err, unix.EIO)
			wantXattr(t, p.path(name), "user.hmc.state", "lost")
			must(t, os.Remove(p.path(name)))
		}
		lives.kill()
		kit.Eventually(t, 20*time.Second, func() bool {
			_, err := os.ReadFile(p.path("lives"))
			return errors.Is(err, unix.EIO)
		})
		for _, name := range []string{"lives", "path", "nobody"} {
			must(t, os.Remove(p.path(name)))
		}
		checkFsck(t, p.m, nil)
	})
}

// Memory that is not the caller's own, or not completely, is refused, and nothing changes.
func TestBindRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		family := familyOf(p.name)
		o := newMemOwner(t, 0, 1, n)
		files := openForBinding(t)
		other := map[string]string{"host": "sim", "sim": "host"}[family]
		for name, tc := range map[string]struct {
			value string
			want  unix.Errno
		}{
			"no JSON":             {"garbage", unix.EINVAL},
			"nothing":             {"", unix.EINVAL},
			"64 KiB of it":        {strings.Repeat("{", 64<<10), unix.EINVAL},
			"another family":      {o.value(other, o.piece(0, n)), unix.EINVAL},
			"a family not here":   {o.value("cuda", o.piece(0, n)), unix.EINVAL},
			"another kind":        {o.value(family, `{"kind":"ipc","handle":"00ff","size":4096}`), unix.EINVAL},
			"beyond the end":      {o.value(family, o.piece(1, n)), unix.EINVAL},
			"far beyond":          {o.value(family, o.piece(1<<62, n)), unix.EINVAL},
			"no such descriptor":  {o.value(family, `{"kind":"memfd","fd":99,"size":4096}`), unix.EINVAL},
			"a pipe":              {o.value(family, `{"kind":"memfd","fd":0,"size":4096}`), unix.EINVAL},
			"no such process":     {bindValue(family, 1<<22, o.piece(0, n)), unix.EINVAL},
			"the mount's process": {bindValue(family, p.m.PID(), o.piece(0, n)), unix.EINVAL},
			"no such path":        {bindValue(family, 0, pathPiece("/dev/shm/hmcfs-no-such-file", n)), unix.ENOENT},
			"a directory":         {bindValue(family, 0, pathPiece("/dev/shm", n)), unix.EINVAL},
			"a device":            {bindValue(family, 0, pathPiece("/dev/zero", n)), unix.EINVAL},
			"a file of the mount": {bindValue(family, 0, pathPiece(p.path("self"), 1)), unix.EINVAL},
			"a file on a disk":    {bindValue(family, 0, pathPiece("/etc/passwd", 1)), unix.EINVAL},
			"a symbolic link":     {bindValue(family, 0, pathPiece("/proc/self/fd/0", 1)), unix.EINVAL},
			"a shape too large":   {strings.Replace(o.value(family, o.piece(0, n)), `"pid"`, `"dtype":"float32","shape":"1,1","pid"`, 1), unix.EINVAL},
			"a socket":            {bindValue(family, os.Getpid(), fdPiece(files["socket"])), unix.EINVAL},
			"read-only":           {bindValue(family, os.Getpid(), fdPiece(files["read-only"])), unix.EPERM},
			"an event":            {bindValue(family, os.Getpid(), fdPiece(files["event"])), unix.EINVAL},
		} {
			f := p.path("self")
			must(t, os.WriteFile(f, nil, 0o666))
			if err := unix.Setxattr(f, bindXattr, []byte(tc.value), 0); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			}
			wantXattr(t, f, "user.hmc.state", "live")
			wantNoXattr(t, f, bindXattr)
			wantContent(t, f, 0, 0)
		}
		full := p.path("full")
		create(t, full, 5, 100)
		wantErrno(t, unix.Setxattr(full, bindXattr, []byte(o.value(family, o.piece(0, n))), 0), unix.EBUSY)
		wantContent(t, full, 5, 100)
		f := p.path("self")
		h := open(t, f, os.O_RDWR)
		wantErrno(t, unix.Setxattr(f, bindXattr, []byte(o.value(family, o.piece(0, n))), 0), unix.EBUSY)
		must(t, h.Close())
		must(t, unix.Setxattr(f, bindXattr, []byte(o.value(family, o.piece(0, n))), 0))
		wantErrno(t, unix.Setxattr(f, bindXattr, []byte(o.value(family, o.piece(0, n))), 0), unix.EBUSY)
		wantErrno(t, unix.Removexattr(f, bindXattr), unix.EOPNOTSUPP)
		// Two files may be one memory.
		bindFile(t, p.path("second"), o.value(family, o.piece(0, n)))
		kit.FillAt(o.bytes, 6, 0)
		wantContent(t, p.path("second"), 6, n)
		wantContent(t, f, 6, n)
	})
}

// After the owner has truncated its file, access to the removed bytes is an error,
// immediately.
func TestOwnerCutsItsMemory(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		o, f := newBound(t, p, n)
		h := open(t, f, os.O_RDWR)
		must(t, o.file.Truncate(n/2))
		got := make([]byte, n/2)
		_, err := h.ReadAt(got, 0)
		must(t, err)
		if i := kit.DiffAt(got, 1, 0); i >= 0 {
			t.Errorf("byte %d of what is left is wrong", i)
		}
		_, err = h.ReadAt(got[:4096], n/2)
		wantErrno(t, err, unix.EIO)
		_, err = h.WriteAt(got[:4096], n/2)
		wantErrno(t, err, unix.EIO)
		if st, err := o.file.Stat(); err != nil || st.Size() != n/2 {
			t.Errorf("the owner's file has %d bytes, %v", st.Size(), err)
		}
		must(t, o.file.Truncate(n)) // before it is unmapped
	})
}
