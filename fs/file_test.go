package fs

import (
	"bytes"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func eachDevice(t *testing.T, test func(t *testing.T, r *rig, root uint64)) {
	for _, device := range []string{"sim0", "sim1"} {
		t.Run(device, func(t *testing.T) {
			r := newRig(t)
			test(t, r, r.root(device))
		})
	}
}

func TestReadWrite(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		f := r.create(root, "a")
		want := pattern(9<<20+4321, 1)
		f.write(want)
		for _, step := range []int{testRequest, 128 << 10, 4096} {
			var got []byte
			for len(got) < len(want) {
				got = append(got, f.readAt(step, uint64(len(got)))...)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("steps of %d: bytes differ", step)
			}
		}
		if p := f.readAt(4096, uint64(len(want))); len(p) != 0 {
			t.Errorf("%d bytes behind the end", len(p))
		}
		// A read returns data written after the range was read ahead.
		f.readAt(testRequest, 0)
		f.writeAt(pattern(testRequest, 9), testRequest)
		if got := f.readAt(testRequest, testRequest); !bytes.Equal(got, pattern(testRequest, 9)) {
			t.Error("read older bytes than were written before")
		}
	})
}

func TestOpenFlags(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	_, out := r.openFile(f.ino, syscall.O_RDWR)
	if want := uint32(fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH); out.OpenFlags != want || out.BackingID != 0 {
		t.Errorf("flags %x, backing %d; want %x, 0", out.OpenFlags, out.BackingID, want)
	}
	if r.files.len() != 2 {
		t.Errorf("%d handles, want 2", r.files.len())
	}
}

func TestStaleHandlesAreRefused(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	f.release()
	h := header(f.ino)
	_, status := f.tryReadAt(nil, 10, 0)
	r.want(status, syscall.EBADF)
	_, status = r.Write(nil, &fuse.WriteIn{InHeader: h, Fh: f.fh}, []byte("x"))
	r.want(status, syscall.EBADF)
	r.want(r.Fsync(nil, &fuse.FsyncIn{InHeader: h, Fh: f.fh}), syscall.EBADF)
	r.want(r.Fallocate(nil, &fuse.FallocateIn{InHeader: h, Fh: f.fh, Length: 1}), syscall.EBADF)
	r.want(r.Lseek(nil, &fuse.LseekIn{InHeader: h, Fh: f.fh, Whence: unix.SEEK_DATA}, &fuse.LseekOut{}), syscall.EBADF)
	_, status = r.CopyFileRange(nil, &fuse.CopyFileRangeIn{InHeader: h, FhIn: f.fh, FhOut: f.fh, Len: 1})
	r.want(status, syscall.EBADF)
	f.release() // releasing twice is harmless
}

func TestAppend(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	f.write([]byte("0123456789"))
	appendAt := func(off uint64, flags uint32, text string) {
		in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Offset: off, Flags: syscall.O_APPEND | syscall.O_WRONLY, WriteFlags: flags}
		_, status := r.Writev(nil, &in, [][]byte{[]byte(text[:1]), []byte(text[1:])})
		r.ok(status)
	}
	appendAt(0, 0, "abc")
	appendAt(2, fuse.WRITE_CACHE, "XY") // a page of a map is written at its own offset
	if got := string(f.readAt(100, 0)); got != "01XY456789abc" {
		t.Errorf("holds %q", got)
	}
}

func TestFullDevice(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		f := r.create(root, "a")
		chunk := pattern(testRequest, 3)
		var off uint64
		for {
			in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Offset: off}
			n, status := r.Writev(nil, &in, [][]byte{chunk})
			if status != fuse.OK {
				r.want(status, syscall.ENOSPC)
				break
			}
			if n == 0 {
				t.Fatal("a write of nothing without an error")
			}
			off += uint64(n)
		}
		if a := r.stat(f.ino); a.Size != off || off == 0 {
			t.Errorf("%d bytes, %d were written", a.Size, off)
		}
		if got := f.readAt(testRequest, 0); !bytes.Equal(got, chunk) {
			t.Error("what was written before differs")
		}
	})
}

// TestInterrupted cancels requests before they begin: they either end with EINTR or complete,
// and the file has either its old content or what was written.
func TestInterrupted(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		f := r.create(root, "a")
		old, young := pattern(testRequest, 1), pattern(testRequest, 2)
		f.writeAt(old, 0)
		cancel := make(chan struct{})
		close(cancel)
		if p, status := f.tryReadAt(cancel, testRequest, 0); status != fuse.EINTR && !bytes.Equal(p, old) {
			t.Errorf("read %d bytes: %v", len(p), status)
		}
		in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh}
		n, status := r.Writev(cancel, &in, [][]byte{young})
		switch {
		case status == fuse.EINTR && n == 0:
		case status == fuse.OK && n > 0:
		default:
			t.Errorf("wrote %d bytes: %v", n, status)
		}
		want := append(bytes.Clone(young[:n]), old[n:]...)
		if got := f.readAt(testRequest, 0); !bytes.Equal(got, want) {
			t.Error("bytes differ after an interrupted write")
		}
		// Operations on names are not interrupted.
		var out fuse.EntryOut
		r.ok(r.Mkdir(cancel, &fuse.MkdirIn{InHeader: header(root), Mode: 0o755}, "d", &out))
	})
}

func TestCopyFileRange(t *testing.T) {
	r := newRig(t)
	src := r.create(r.root("sim0"), "src")
	want := pattern(5<<20+77, 4)
	src.write(want)
	for _, device := range []string{"sim0", "sim1"} {
		dst := r.create(r.root(device), "dst")
		in := fuse.CopyFileRangeIn{InHeader: header(src.ino), FhIn: src.fh, NodeIdOut: dst.ino, FhOut: dst.fh, Len: 1 << 40}
		n, status := r.CopyFileRange(nil, &in)
		r.ok(status)
		if int(n) != len(want) {
			t.Fatalf("copied %d of %d bytes", n, len(want))
		}
		for off := 0; off < len(want); off += testRequest {
			if !bytes.Equal(dst.readAt(testRequest, uint64(off)), want[off:min(off+testRequest, len(want))]) {
				t.Fatalf("%s: bytes differ at %d", device, off)
			}
		}
		if a := r.stat(dst.ino); a.Blocks*512 < a.Size {
			t.Errorf("%d blocks for %d bytes: cp would take it for sparse", a.Blocks, a.Size)
		}
		in.Flags = 1
		_, status = r.CopyFileRange(nil, &in)
		r.want(status, syscall.EINVAL)
	}
	control, _ := r.openFile(uint64(versionIno), syscall.O_RDONLY)
	in := fuse.CopyFileRangeIn{FhIn: control.fh, FhOut: src.fh, Len: 1}
	_, status := r.CopyFileRange(nil, &in)
	r.want(status, syscall.EOPNOTSUPP)
}

func TestFallocateAndLseek(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		f := r.create(root, "a")
		f.write(pattern(4<<20, 5))
		allocate := func(mode uint32, off, n uint64) fuse.Status {
			return r.Fallocate(nil, &fuse.FallocateIn{InHeader: header(f.ino), Fh: f.fh, Mode: mode, Offset: off, Length: n})
		}
		r.ok(allocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1<<20, 1<<20))
		if got := f.readAt(testRequest, 1<<20); !bytes.Equal(got, make([]byte, testRequest)) {
			t.Error("a hole is not zeros")
		}
		r.ok(allocate(0, 0, 5<<20))
		r.ok(allocate(unix.FALLOC_FL_KEEP_SIZE, 0, 6<<20))
		r.ok(allocate(unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, 0, 100))
		r.ok(allocate(unix.FALLOC_FL_ZERO_RANGE, 5<<20, 100))
		if a := r.stat(f.ino); a.Size != 5<<20+100 {
			t.Errorf("%d bytes, want %d", a.Size, 5<<20+100)
		}
		for _, mode := range []uint32{unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE, unix.FALLOC_FL_PUNCH_HOLE} {
			r.want(allocate(mode, 0, 4096), syscall.EOPNOTSUPP)
		}
		seek := func(whence uint32, off uint64) (uint64, fuse.Status) {
			var out fuse.LseekOut
			status := r.Lseek(nil, &fuse.LseekIn{InHeader: header(f.ino), Fh: f.fh, Whence: whence, Offset: off}, &out)
			return out.Offset, status
		}
		if at, status := seek(unix.SEEK_DATA, 0); status != fuse.OK || at > 4096 {
			t.Errorf("data at %d: %v", at, status)
		}
		_, status := seek(unix.SEEK_HOLE, 100<<20)
		r.want(status, syscall.ENXIO)
		_, status = seek(unix.SEEK_DATA, 100<<20)
		r.want(status, syscall.ENXIO)
		_, status = seek(unix.SEEK_SET, 0)
		r.want(status, syscall.EINVAL)
	})
}

func TestFilesInParallel(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		f := r.create(root, "a")
		f.write(bytes.Repeat([]byte{1}, 4<<20))
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				g, _ := r.openFile(f.ino, syscall.O_RDWR)
				defer g.release()
				for off := uint64(0); off < 4<<20; off += testRequest {
					if i%2 == 0 {
						g.writeAt(bytes.Repeat([]byte{byte(i + 1)}, testRequest), off)
						continue
					}
					for _, b := range g.readAt(testRequest, off) {
						if b != 1 && b != 3 {
							t.Errorf("read %d, which nobody wrote", b)
							return
						}
					}
				}
			})
		}
		group.Wait()
	})
}
