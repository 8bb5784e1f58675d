package fs

import (
	"bytes"
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
)

const publishIno = uint64(metadata.PublishIno)

// publish makes a file on a device and moves it into publish/.
func (r *rig) publish(root uint64, name string, content []byte) (ino uint64) {
	r.t.Helper()
	f := r.create(root, name)
	f.write(content)
	f.release()
	r.ok(r.rename(root, name, publishIno, name))
	return f.ino
}

func (r *rig) rename(from uint64, name string, to uint64, newName string) fuse.Status {
	return r.Rename(nil, &fuse.RenameIn{InHeader: header(from), Newdir: to}, name, newName)
}

// direct reads like read(2): the request names the reader.
func (f *file) direct(n int, off uint64) ([]byte, fuse.Status) {
	in := fuse.ReadIn{InHeader: header(f.ino), Fh: f.fh, Offset: off, Size: uint32(n), ReadFlags: fuse.READ_LOCKOWNER}
	buf := make([]byte, n)
	result, status := f.r.Read(nil, &in, buf)
	if status != fuse.OK || result.Size() == 0 {
		return nil, status
	}
	p, _ := result.Bytes(nil)
	p = bytes.Clone(p)
	result.Done()
	return p, status
}

func (f *file) flush() { f.r.ok(f.r.Flush(nil, &fuse.FlushIn{InHeader: header(f.ino), Fh: f.fh})) }

func TestPublishDirectory(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	if out := r.lookup(rootIno, publishName); out.NodeId != publishIno || out.AttrTimeout() != 0 {
		t.Errorf("node %d, its attributes kept for %v", out.NodeId, out.AttrTimeout())
	}
	if up := r.lookup(publishIno, ".."); up.NodeId != rootIno {
		t.Errorf("the parent of publish/ is %d", up.NodeId)
	}
	if out := r.lookup(publishIno, "t"); out.NodeId != 0 || out.EntryTimeout() != 0 {
		t.Errorf("a name that is not there: node %d kept for %v", out.NodeId, out.EntryTimeout())
	}
	ino := r.publish(sim0, "t.npy", pattern(1000, 1))
	out := r.lookup(publishIno, "t.npy")
	if out.NodeId != ino || out.EntryTimeout() != 0 || out.AttrTimeout() != 0 {
		t.Errorf("node %d, want %d; kept for %v and %v", out.NodeId, ino, out.EntryTimeout(), out.AttrTimeout())
	}
	if got := r.listAll(publishIno); !slices.Equal(got, []string{".", "..", "t.npy"}) {
		t.Errorf("publish/ holds %v", got)
	}
	if view := r.lookup(publishIno, "t.npy.tensors"); view.NodeId != 0 {
		t.Errorf("a publication has a view, %d", view.NodeId)
	}
	var df, all fuse.StatfsOut
	h, root := header(publishIno), header(rootIno)
	r.ok(r.StatFs(nil, &h, &df))
	r.ok(r.StatFs(nil, &root, &all))
	if df.Blocks != all.Blocks {
		t.Errorf("publish/ has %d blocks, the mount %d", df.Blocks, all.Blocks)
	}
}

func TestPublishIsNobodysToChange(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	ino := r.publish(sim0, "t", pattern(1000, 1))
	f := r.create(sim0, "f")
	f.release()
	var entry fuse.EntryOut
	var created fuse.CreateOut
	var attr fuse.AttrOut
	h := header(publishIno)
	r.want(r.Mknod(nil, &fuse.MknodIn{InHeader: h, Mode: syscall.S_IFREG}, "x", &entry), syscall.EPERM)
	r.want(r.Mkdir(nil, &fuse.MkdirIn{InHeader: h}, "x", &entry), syscall.EPERM)
	r.want(r.Symlink(nil, &h, "y", "x", &entry), syscall.EPERM)
	r.want(r.Link(nil, &fuse.LinkIn{InHeader: h, Oldnodeid: f.ino}, "x", &entry), syscall.EPERM)
	r.want(r.Link(nil, &fuse.LinkIn{InHeader: header(sim0), Oldnodeid: ino}, "x", &entry), syscall.EPERM)
	r.want(r.Create(nil, &fuse.CreateIn{InHeader: h}, "x", &created), syscall.EPERM)
	r.want(r.SetAttr(nil, &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: h, Valid: fuse.FATTR_MODE}}, &attr), syscall.EPERM)
	r.want(r.SetAttr(nil, &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: header(ino), Valid: fuse.FATTR_SIZE}}, &attr), syscall.EPERM)
	r.want(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h}, "user.a", nil), syscall.EPERM)
	r.want(r.RemoveXAttr(nil, &h, "user.a"), syscall.EPERM)
	r.want(r.rename(publishIno, "t", publishIno, "u"), syscall.EPERM)
	exchange := fuse.RenameIn{InHeader: header(sim0), Newdir: publishIno, Flags: uint32(metadata.Exchange)}
	r.want(r.Rename(nil, &exchange, "f", "t"), syscall.EPERM)
	for _, flags := range []uint32{syscall.O_WRONLY, syscall.O_RDWR} {
		r.want(r.Open(nil, &fuse.OpenIn{InHeader: header(ino), Flags: flags}, &fuse.OpenOut{}), syscall.EPERM)
	}
	// In the directory of keyed objects only hmcfs makes names, and it alone makes the
	// directory.
	r.want(r.Mkdir(nil, &fuse.MkdirIn{InHeader: header(sim0)}, keyedName, &entry), syscall.EPERM)
	r.want(r.rename(sim0, "f", sim0, keyedName), syscall.EPERM)
	r.want(r.rename(sim0, keyedName, sim0, "g"), syscall.EPERM)
	if missing := r.lookup(sim0, keyedName); missing.EntryTimeout() != 0 {
		t.Errorf("that there are no keyed objects is kept for %v", missing.EntryTimeout())
	}
	r.ok(r.Unlink(nil, &h, "t"))
}

func TestPublishedIsReadOnce(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		want := pattern(200_000, 3)
		ino := r.publish(root, "t", want)
		winner, out := r.openFile(ino, syscall.O_RDONLY)
		if out.OpenFlags != fuse.FOPEN_DIRECT_IO {
			t.Errorf("flags %x", out.OpenFlags)
		}
		loser, _ := r.openFile(ino, syscall.O_RDONLY)
		for _, f := range []*file{winner, loser} {
			got, status := f.direct(len(want)-1, 0)
			if r.ok(status); !bytes.Equal(got, want[:len(want)-1]) {
				t.Error("bytes differ")
			}
			f.flush()
		}
		if r.lookup(publishIno, "t").NodeId != ino {
			t.Fatal("a part of it has consumed it")
		}
		last, status := winner.direct(4096, uint64(len(want)-1))
		if r.ok(status); !bytes.Equal(last, want[len(want)-1:]) {
			t.Errorf("the last byte is %x", last)
		}
		_, status = loser.direct(1, uint64(len(want)-1))
		r.want(status, syscall.EIO)
		_, status = loser.direct(10, 0)
		r.want(status, syscall.EIO)
		r.want(r.Open(nil, &fuse.OpenIn{InHeader: header(ino)}, &fuse.OpenOut{}), syscall.ENOENT)
		winner.flush()
		if left := r.lookup(publishIno, "t"); left.NodeId != 0 {
			t.Error("it is still there when its reader has closed it")
		}
		winner.release()
		loser.release()
	})
}

// TestPublishedPages reads for the kernel's pages, which all openers of the file share.
func TestPublishedPages(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		r.published.wait = time.Millisecond
		want := pattern(10_000, 4)
		ino := r.publish(root, "t", want)
		first, _ := r.openFile(ino, syscall.O_RDONLY)
		second, _ := r.openFile(ino, syscall.O_RDONLY)
		_, status := first.tryReadAt(nil, 4096, 0)
		r.want(status, syscall.EIO)
		second.release()
		if got := first.readAt(4096, 0); !bytes.Equal(got, want[:4096]) {
			t.Error("bytes differ")
		}
		r.want(r.Open(nil, &fuse.OpenIn{InHeader: header(ino)}, &fuse.OpenOut{}), syscall.EBUSY)
		first.release()
		again, _ := r.openFile(ino, syscall.O_RDONLY)
		if got := again.readAt(len(want), 0); !bytes.Equal(got, want) {
			t.Error("bytes differ")
		}
		again.release()
		if r.lookup(publishIno, "t").NodeId != 0 {
			t.Error("mapped whole, it is still there")
		}
		r.published.mu.Lock()
		n := len(r.published.files)
		r.published.mu.Unlock()
		if n != 0 {
			t.Errorf("%d files are still counted", n)
		}
	})
}

// TestPublishedWaitsForClosedHandles delays the release of a handle.
func TestPublishedWaitsForClosedHandles(t *testing.T) {
	p := published{wait: time.Minute}
	const ino = 5000
	for range 2 {
		if !p.open(ino) {
			t.Fatal("not opened")
		}
	}
	mapped := make(chan bool)
	go func() { mapped <- p.mapped(ino, 1) }()
	p.release(ino, 2)
	if !<-mapped {
		t.Error("the only handle gets no pages")
	}
	opened := make(chan bool)
	go func() { opened <- p.open(ino) }()
	p.release(ino, 1)
	if !<-opened {
		t.Error("not opened when the map had ended")
	}
	p.release(ino, 3)
	if len(p.files) != 0 {
		t.Error("files are left")
	}
}

func TestPublishedIsCopied(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		want := pattern(100_000, 5)
		dir := r.root("sim0")
		copied := func(src *file, n int, name string) (*file, uint32, fuse.Status) {
			dst := r.create(dir, name)
			in := fuse.CopyFileRangeIn{InHeader: header(src.ino), FhIn: src.fh, NodeIdOut: dst.ino, FhOut: dst.fh, Len: uint64(n)}
			done, status := r.CopyFileRange(nil, &in)
			return dst, done, status
		}
		ino := r.publish(root, "t", want)
		winner, _ := r.openFile(ino, syscall.O_RDONLY)
		loser, _ := r.openFile(ino, syscall.O_RDONLY)
		part, n, status := copied(winner, 1000, "part")
		if r.ok(status); n != 1000 || !bytes.Equal(part.readAt(2000, 0), want[:1000]) {
			t.Errorf("copied a part: %d", n)
		}
		whole, n, status := copied(winner, 1<<20, "whole")
		if r.ok(status); int(n) != len(want) || !bytes.Equal(whole.readAt(1<<20, 0), want) {
			t.Errorf("copied %d bytes", n)
		}
		torn, _, status := copied(loser, 1<<20, "torn")
		r.want(status, syscall.EIO)
		if got := torn.readAt(1<<20, 0); bytes.Equal(got, want) {
			t.Error("who came second has everything")
		}
		if _, n, status = copied(winner, 0, "none"); status != fuse.OK || n != 0 {
			t.Errorf("copied nothing: %d, %v", n, status)
		}
		winner.release()
		if r.lookup(publishIno, "t").NodeId != 0 {
			t.Error("copied whole, it is still there")
		}
	})
}

// TestPublishedIsCopiedToAFullDevice fails to receive a file, which remains complete.
func TestPublishedIsCopiedToAFullDevice(t *testing.T) {
	r := newRigOn(t, sim.New(0, sim.Params{Size: 8 * devices.MiB}), sim.New(1, sim.Params{Size: 64 * devices.MiB}))
	want := pattern(9<<20, 6)
	ino := r.publish(r.root("sim1"), "t", want)
	src, _ := r.openFile(ino, syscall.O_RDONLY)
	dst := r.create(r.root("sim0"), "copy")
	in := fuse.CopyFileRangeIn{InHeader: header(ino), FhIn: src.fh, NodeIdOut: dst.ino, FhOut: dst.fh, Len: 1 << 30}
	for {
		n, status := r.CopyFileRange(nil, &in)
		if status != fuse.OK {
			r.want(status, syscall.ENOSPC)
			break
		}
		in.OffIn, in.OffOut = in.OffIn+uint64(n), in.OffOut+uint64(n)
		if in.OffIn >= uint64(len(want)) {
			t.Fatal("there was room for it")
		}
	}
	src.flush()
	src.release()
	if r.lookup(publishIno, "t").NodeId != ino {
		t.Error("it is gone, and nobody has it")
	}
}

// TestReceivedByRenameBesideAnOpen opens an inode that was found in publish/ and has since
// been received by rename: the kernel must repeat the lookup of the name.
func TestReceivedByRenameBesideAnOpen(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	openBy := func(thread uint32, ino uint64) fuse.Status {
		h := header(ino)
		h.Pid = thread
		var out fuse.OpenOut
		status := r.Open(nil, &fuse.OpenIn{InHeader: h}, &out)
		if status == fuse.OK {
			r.Release(nil, &fuse.ReleaseIn{InHeader: h, Fh: out.Fh})
		}
		return status
	}
	for range 2 {
		ino := r.publish(sim0, "t", pattern(1000, 7))
		r.ok(openBy(1, ino))
		r.ok(r.rename(publishIno, "t", sim0, "mine"))
		r.want(openBy(1, ino), syscall.ESTALE)
		r.ok(openBy(1, ino))
		r.want(openBy(2, ino), syscall.ESTALE)
		r.ok(openBy(2, ino))
		h := header(sim0)
		r.ok(r.Unlink(nil, &h, "mine"))
	}
}

// TestNamesThatGoByThemselves removes a file without the kernel's knowledge.
func TestNamesThatGoByThemselves(t *testing.T) {
	eachDevice(t, func(t *testing.T, r *rig, root uint64) {
		f := r.create(root, "f")
		f.write(pattern(1000, 8))
		r.lookup(root, "f")
		r.kernel.inodes = nil
		r.store.OnChange(r.objectChanged)
		r.ok(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: header(f.ino)}, "user.hmc.ttl", []byte("100")))
		if len(r.kernel.inodes) != 1 {
			t.Errorf("the kernel was told of %v", r.kernel.inodes)
		}
		if a := r.stat(f.ino); a.Timeout() > 100*time.Second || a.Timeout() == 0 {
			t.Errorf("its attributes are kept for %v", a.Timeout())
		}
		if out := r.lookup(root, "f"); out.EntryTimeout() > 100*time.Second || out.EntryTimeout() == 0 {
			t.Errorf("its name is kept for %v", out.EntryTimeout())
		}
		must(t, r.store.Unlink(context.Background(), metadata.Ino(root), "f"))
		// Open handles continue to work, new ones cannot be opened.
		r.stat(f.ino)
		r.want(r.Open(nil, &fuse.OpenIn{InHeader: header(f.ino)}, &fuse.OpenOut{}), syscall.ESTALE)
		f.release()
		r.want(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(f.ino)}, &fuse.AttrOut{}), syscall.ESTALE)
		r.want(r.Statx(nil, &fuse.StatxIn{InHeader: header(f.ino), SxMask: unix.STATX_BASIC_STATS}, &fuse.StatxOut{}), syscall.ESTALE)
		r.Forget(f.ino, 3)
		if n := r.fleeting.count.Load(); n != 0 {
			t.Errorf("%d inodes are still remembered", n)
		}
		// A file that the kernel itself removed exists until the kernel forgets it, and is
		// then missing, not stale.
		g := r.create(root, "g")
		g.release()
		h := header(root)
		r.ok(r.Unlink(nil, &h, "g"))
		again, _ := r.openFile(g.ino, syscall.O_RDONLY)
		again.release()
		r.Forget(g.ino, 1)
		r.want(r.Open(nil, &fuse.OpenIn{InHeader: header(g.ino)}, &fuse.OpenOut{}), syscall.ENOENT)
	})
}

// TestPublishedNameTheKernelKept receives a file whose cached name the kernel has moved into
// publish/.
func TestPublishedNameTheKernelKept(t *testing.T) {
	r := newRig(t)
	ino := r.publish(r.root("sim0"), "t", pattern(1000, 9))
	winner, _ := r.openFile(ino, syscall.O_RDONLY)
	late, _ := r.openFile(ino, syscall.O_RDONLY)
	_, status := winner.direct(4096, 0)
	r.ok(status)
	winner.flush()
	r.want(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(ino)}, &fuse.AttrOut{}), syscall.ESTALE)
	r.want(r.Open(nil, &fuse.OpenIn{InHeader: header(ino)}, &fuse.OpenOut{}), syscall.ESTALE)
	winner.release()
	late.release()
}
