package tests

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// exportFile exports a file and maps its memory as another program would.
func exportFile(t *testing.T, path string) (share.Memory, []byte) {
	t.Helper()
	text, err := getxattr(path, handleXattr)
	must(t, err)
	m, err := share.Parse([]byte(text))
	must(t, err)
	f, err := os.OpenFile(m.Pieces[0].Path, os.O_RDWR, 0)
	must(t, err)
	view, err := unix.Mmap(int(f.Fd()), 0, int(m.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	must(t, f.Close())
	t.Cleanup(func() { must(t, unix.Munmap(view)) })
	return m, view
}

// Memory mapped by the handle is the file: changes are visible both ways immediately.
func TestExportedMemoryIsTheFile(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 3<<20 + 1000
		f := p.path("f")
		create(t, f, 1, n)
		must(t, unix.Setxattr(f, "user.hmc.dtype", []byte("uint8"), 0))
		m, view := exportFile(t, f)
		if string(m.Family) != familyOf(p.name) || m.PID != p.m.PID() || m.Size != n || m.Dtype != "uint8" {
			t.Errorf("the handle says %s", m)
		}
		if i := kit.DiffAt(view, 1, 0); i >= 0 {
			t.Errorf("byte %d of the memory is not the file's", i)
		}
		h := open(t, f, os.O_RDWR)
		readWhileStored(t, h, view, 6)
		_, err := h.WriteAt(kit.Bytes(7, 5000, n-5000), 5000)
		must(t, err)
		if i := kit.DiffAt(view[5000:], 7, 5000); i >= 0 {
			t.Errorf("byte %d of the memory is not what was written", i)
		}
		again, _ := exportFile(t, f)
		if again.String() != m.String() {
			t.Errorf("exported again it is\n%s, it was\n%s", again, m)
		}
		if slices.Contains(listxattr(t, f), handleXattr) || slices.Contains(listxattr(t, f), bindXattr) {
			t.Error("the attributes are listed, so copies of files would export them")
		}
	})
}

// Exported memory stays in place until the export ends.
func TestExportedMemoryCantBeCut(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		f := p.path("f")
		create(t, f, 1, n)
		_, view := exportFile(t, f)
		h := open(t, f, os.O_RDWR)
		for _, size := range []int64{0, 1, n - 1} {
			wantErrno(t, unix.Truncate(f, size), unix.EBUSY)
		}
		_, err := os.OpenFile(f, os.O_RDWR|os.O_TRUNC, 0)
		wantErrno(t, err, unix.EBUSY)
		punch := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
		wantErrno(t, fallocate(h, punch, 8192, 8192), unix.EBUSY)
		must(t, fallocate(h, unix.FALLOC_FL_ZERO_RANGE, 4000, 300_000))
		if !bytes.Equal(view[4000:304_000], make([]byte, 300_000)) || kit.DiffAt(view[304_000:], 1, 304_000) >= 0 {
			t.Error("zeroing a range is not seen in the memory")
		}
		kit.FillAt(view, 2, 0)
		wantContent(t, f, 2, n)
		must(t, unix.Truncate(f, 2*n)) // growing is fine
		_, err = h.WriteAt(kit.Bytes(3, n, n), n)
		must(t, err)
		must(t, fallocate(h, punch, n, 4096))
		must(t, unix.Truncate(f, n))
		kit.FillAt(view, 4, 0)
		wantContent(t, f, 4, n)
		must(t, unix.Removexattr(f, handleXattr))
		wantErrno(t, unix.Removexattr(f, handleXattr), unix.ENODATA)
		must(t, unix.Truncate(f, 100))
		wantContent(t, f, 4, 100)
		must(t, unix.Truncate(f, n))
		got, err := os.ReadFile(f)
		must(t, err)
		if kit.DiffAt(got[:100], 4, 0) >= 0 || !bytes.Equal(got[100:], make([]byte, n-100)) {
			t.Error("what was cut comes back")
		}
	})
}

// The name can be removed; processes that have the memory mapped keep it.
func TestExportedFileIsRemoved(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		f, g := p.path("f"), p.path("g")
		create(t, f, 1, n)
		_, view := exportFile(t, f)
		elsewhere := p.m.Path(elsewhereOf(p.name), "moved")
		wantErrno(t, unix.Rename(f, elsewhere), unix.EBUSY)
		must(t, os.Rename(f, g))
		must(t, os.Remove(g))
		if i := kit.DiffAt(view, 1, 0); i >= 0 {
			t.Errorf("byte %d is gone with the name", i)
		}
		for i := range 8 { // later files use other memory
			create(t, p.path(string(rune('a'+i))), 2, n)
		}
		if i := kit.DiffAt(view, 1, 0); i >= 0 {
			t.Errorf("byte %d is another file's", i)
		}
	})
}

// An error that a file can't be truncated or removed because it is exported says so.
func TestStatTellsExport(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		f := p.path("f")
		create(t, f, 1, 5000)
		wantExported := func(want string) {
			t.Helper()
			out, err := p.m.Run("stat", f)
			must(t, err)
			_, got, _ := strings.Cut(out, "exported:")
			got, _, _ = strings.Cut(got, "\n")
			if got = strings.TrimSpace(got); got != want {
				t.Errorf("hmcfs stat says that it is exported: %q, want %q", got, want)
			}
		}
		wantExported("")
		_, err := p.m.Run("export", f)
		must(t, err)
		wantExported("5000 (4.9 KiB) as memfd")
		_, err = p.m.Run("export", "--end", f)
		must(t, err)
		wantExported("")
	})
}
