package fs

import (
	"bytes"
	"slices"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// staleCount returns the number of kept pages that the kernel has not dropped.
func (m *mapped) staleCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.stale)
}

// writeBack simulates the kernel writing back a page that was stored to.
func (f *file) writeBack(p []byte, off uint64) {
	f.r.t.Helper()
	in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Offset: off, Size: uint32(len(p)), WriteFlags: fuse.WRITE_CACHE}
	n, status := f.r.Writev(nil, &in, [][]byte{p[:100], p[100:]})
	f.r.ok(status)
	if int(n) != len(p) {
		f.r.t.Fatalf("wrote %d of %d bytes", n, len(p))
	}
}

// truncate simulates ftruncate(2).
func (f *file) truncate(size uint64) {
	f.r.t.Helper()
	in := setAttr(f.ino, fuse.FATTR_SIZE)
	in.Size = size
	f.r.ok(f.r.SetAttr(nil, in, &fuse.AttrOut{}))
}

// TestStoresBesideCalls makes the kernel read a page of a map again after it has dropped it
// for a change by a call, store to it, and write it back after the change, for each kind of
// change: both the call and the store take effect.
func TestStoresBesideCalls(t *testing.T) {
	const off, n = 2*page + 100, 50
	changes := map[string]func(r *rig, f *file) (want []byte){
		"write": func(_ *rig, f *file) []byte {
			p := pattern(n, 77)
			f.writeAt(p, off)
			return p
		},
		"append": func(r *rig, f *file) []byte {
			p := pattern(3*page-off, 77)
			f.truncate(off)
			in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Size: uint32(len(p)), Flags: syscall.O_APPEND | syscall.O_RDWR}
			_, status := r.Writev(nil, &in, [][]byte{p})
			r.ok(status)
			return p
		},
		"punch": func(r *rig, f *file) []byte {
			in := fuse.FallocateIn{InHeader: header(f.ino), Fh: f.fh, Mode: unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, Offset: off, Length: n}
			r.ok(r.Fallocate(nil, &in))
			return make([]byte, n)
		},
	}
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		for name, change := range changes {
			f := r.create(root, name)
			f.write(pattern(3*page, 1))
			copyOfKernel := f.readAt(page, 2*page)
			calls := 0
			r.kernel.refault = func() {
				switch calls++; calls {
				case 1:
					copyOfKernel = f.readAt(page, 2*page)
					copyOfKernel = append(copyOfKernel, make([]byte, page-len(copyOfKernel))...)
				case 2:
					copyOfKernel[7] ^= 0xff
					f.writeBack(bytes.Clone(copyOfKernel), 2*page)
					copyOfKernel[8] ^= 0xff
					f.writeBack(bytes.Clone(copyOfKernel), 2*page)
				}
			}
			want := change(r, f)
			r.kernel.refault = nil
			if calls != 2 {
				t.Errorf("%s: the kernel was told %d times, want 2", name, calls)
			}
			got := f.readAt(page, 2*page)
			if !bytes.Equal(got[100:100+len(want)], want) {
				t.Errorf("%s: what the call has put is lost", name)
			}
			if !bytes.Equal(got[:100], copyOfKernel[:100]) {
				t.Errorf("%s: what was stored is lost", name)
			}
			if n := r.mappable.of(metadata.Ino(f.ino)).staleCount(); n > 0 {
				t.Errorf("%s: %d pages are kept after the kernel has dropped them", name, n)
			}
			f.release()
		}
		if n := r.mappable.count.Load(); n != 0 {
			t.Errorf("%d files are still kept", n)
		}
	})
}

// TestCutBesideStores truncates a file of which the kernel has an older page: when it is
// written back later it contains zeros after the end, where a call may have written.
func TestCutBesideStores(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	f.write(pattern(page, 1))
	old := f.readAt(page, 0)
	young := pattern(page-1000, 5)
	calls := 0
	r.kernel.refault = func() {
		switch calls++; calls {
		case 1:
			f.readAt(page, 0)
		case 2:
			f.truncate(1000)
			f.truncate(page)
			h, _ := r.files.get(f.fh)
			_, status := r.write(t.Context(), &fuse.WriteIn{}, h.file, objects.Write{Off: 1000}, [][]byte{young})
			r.ok(status)
			clear(old[1000:])
			f.writeBack(old, 0)
		}
	}
	f.writeAt(pattern(10, 7), 20)
	if got := f.readAt(page, 0); !bytes.Equal(got[1000:], young) {
		t.Error("the zeros of a cut came back over what was written after it")
	}
}

// TestOthersAreNotMinded reads and writes a file that no program can store to through a map.
func TestOthersAreNotMinded(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	ino := f.ino
	f.write(pattern(page, 1))
	f.release()
	w, _ := r.openFile(ino, syscall.O_WRONLY)
	rd, _ := r.openFile(ino, syscall.O_RDONLY)
	rd.readAt(page, 0)
	w.writeAt(pattern(10, 2), 0)
	if len(r.kernel.pages) > 0 || r.mappable.of(0) != nil {
		t.Error("the kernel was told to drop pages that nobody can store to")
	}
}

// TestCopyIntoPartsOfPages copies into a file that can be stored to through a map: after a
// copy the kernel drops whole pages.
func TestCopyIntoPartsOfPages(t *testing.T) {
	r := newRig(t)
	src, dst := r.create(r.root("sim0"), "src"), r.create(r.root("sim0"), "dst")
	src.write(pattern(5*page, 1))
	dst.write(pattern(5*page, 2))
	for _, c := range []struct {
		off, n, want uint64
		errno        syscall.Errno
	}{
		{0, 5 * page, 5 * page, 0},
		{page, page + 10, page, 0},
		{4 * page, page + 10, page + 10, 0},
		{page, 10, 0, syscall.EXDEV},
		{10, 2 * page, 0, syscall.EXDEV},
	} {
		in := fuse.CopyFileRangeIn{InHeader: header(src.ino), FhIn: src.fh, NodeIdOut: dst.ino, FhOut: dst.fh, OffOut: c.off, Len: c.n}
		n, status := r.CopyFileRange(nil, &in)
		if want := min(c.want, 5*page); status != fuse.Status(c.errno) || uint64(n) != want {
			t.Errorf("%d bytes at %d: copied %d, %v; want %d, %v", c.n, c.off, n, status, want, fuse.Status(c.errno))
		}
	}
}

func TestPageSet(t *testing.T) {
	s := pageSet{}
	s.add(3, 5)
	s.add(chunkPages-1, chunkPages)
	s.add(1<<50, 1<<50)
	got := s.within(4, 1<<52)
	slices.Sort(got)
	if want := []uint64{4, 5, chunkPages - 1, chunkPages, 1 << 50}; !slices.Equal(got, want) {
		t.Errorf("within: %v, want %v", got, want)
	}
	if got := s.within(6, chunkPages-2); len(got) != 0 {
		t.Errorf("found %v where nothing is", got)
	}
	s.remove(s.within(0, 1<<52))
	if len(s) != 0 {
		t.Errorf("%d parts are left of an empty set", len(s))
	}
}

// TestSignalBeforeAWrite: a request that need not wait for another one is carried out despite
// an earlier signal, so that calls of several requests are not cut short.
func TestSignalBeforeAWrite(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		f := r.create(root, "f")
		signal := make(chan struct{})
		close(signal)
		for i := range uint64(64) {
			want := pattern(page+100, byte(i))
			in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Offset: i * 5000, Size: uint32(len(want))}
			n, status := r.Writev(signal, &in, [][]byte{want})
			if r.ok(status); int(n) != len(want) {
				t.Fatalf("wrote %d of %d bytes", n, len(want))
			}
			if got := f.readAt(len(want), i*5000); !bytes.Equal(got, want) {
				t.Fatalf("write %d is not there", i)
			}
		}
	})
}
