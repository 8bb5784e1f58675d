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

// familyOf is the family that memory bound in a directory has.
func familyOf(name string) string { return strings.TrimRight(name, "0123456789") }

// onBoth runs a test in a directory of the host tier, served in both ways, and
// of a simulated device.
func onBoth(t *testing.T, fn func(t *testing.T, p place)) {
	t.Helper()
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	other := mnt.Mount(t, mnt.Options{Extra: []string{"--passthrough", "off"}})
	for _, p := range []place{{name: "host", m: m}, {name: "sim0", m: m}, {name: "host", m: other}} {
		p.dir = openDir(t, p.m.Path(p.name))
		name := p.name
		if p.m == other {
			name += "-daemon"
		}
		t.Run(name, func(t *testing.T) { fn(t, p) })
	}
}

// The file is the memory: what either side writes, the other reads at once.
func TestBoundFileIsTheMemory(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 3<<20 + 4096
		o := newMemOwner(t, 0, 1, n)
		f := p.path("f")
		bindFile(t, f, o.value(familyOf(p.name), o.piece(0, n)))
		wantXattr(t, f, "user.hmc.state", "bound")
		if st := lstat(t, f); st.Size != n || st.Blocks*512 < n {
			t.Errorf("size %d, %d blocks", st.Size, st.Blocks)
		}
		wantContent(t, f, 1, n)
		h := open(t, f, os.O_RDWR)
		got := make([]byte, n)
		for seed := uint64(2); seed < 6; seed++ { // sequential readers must not see what was read ahead
			kit.FillAt(o.bytes, seed, 0)
			_, err := h.ReadAt(got, 0)
			must(t, err)
			if i := kit.DiffAt(got, seed, 0); i >= 0 {
				t.Fatalf("byte %d is not what the owner has stored", i)
			}
		}
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

// A bound object has the length of its memory for good.
func TestBoundFileHasAFixedSize(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 64 << 10
		o := newMemOwner(t, 0, 1, n)
		f := p.path("f")
		bindFile(t, f, o.value(familyOf(p.name), o.piece(0, n)))
		for _, size := range []int64{0, 1, n - 1, n + 1, 1 << 40} {
			wantErrno(t, unix.Truncate(f, size), unix.EBUSY)
		}
		must(t, unix.Truncate(f, n))
		_, err := os.OpenFile(f, os.O_RDWR|os.O_TRUNC, 0)
		wantErrno(t, err, unix.EBUSY)
		h := open(t, f, os.O_RDWR)
		wantErrno(t, unix.Fallocate(int(h.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096), unix.EBUSY)
		wantErrno(t, unix.Fallocate(int(h.Fd()), 0, 0, n+1), unix.ENOSPC)
		must(t, unix.Fallocate(int(h.Fd()), 0, 0, n))
		must(t, unix.Fallocate(int(h.Fd()), unix.FALLOC_FL_ZERO_RANGE, 1000, 5000))
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

// Several pieces make one object; it is copied, linked and renamed as any.
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
		elsewhere := p.m.Path(map[string]string{"host": "sim0", "sim0": "host"}[p.name], "copy")
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

// When the owner ends, everybody is told, also who has the file open.
func TestOwnerEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		o := newMemOwner(t, 0, 1, n)
		f := p.path("f")
		bindFile(t, f, o.value(familyOf(p.name), o.piece(0, n)))
		h := open(t, f, os.O_RDWR)
		reading := make(chan error, 1)
		go func() { reading <- readUntilError(h) }()
		o.kill()
		select {
		case err := <-reading:
			wantErrno(t, err, unix.EIO)
		case <-time.After(20 * time.Second):
			t.Fatal("a reader does not hear of the owner's end")
		}
		_, err := h.ReadAt(make([]byte, 10), 0)
		wantErrno(t, err, unix.EIO)
		_, err = h.WriteAt(make([]byte, 10), 0)
		wantErrno(t, err, unix.EIO)
		_, err = os.ReadFile(f)
		wantErrno(t, err, unix.EIO)
		kit.Eventually(t, 20*time.Second, func() error {
			if state, err := getxattr(f, "user.hmc.state"); state != "lost" || err != nil {
				return errors.Join(errors.New("state is "+state), err)
			}
			return nil
		})
		wantNoXattr(t, f, bindXattr)
		rel, err := filepath.Rel(p.m.Dir, f)
		must(t, err)
		checkFsck(t, p.m, []string{rel})
		must(t, h.Close())
		create(t, f, 9, 5000) // cut to nothing it is a file as any
		wantContent(t, f, 9, 5000)
		wantXattr(t, f, "user.hmc.state", "live")
	})
}

func readUntilError(h *os.File) error {
	p := make([]byte, 256<<10)
	for off := int64(0); ; off = (off + int64(len(p))) % (1 << 20) {
		if _, err := h.ReadAt(p, off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
}
