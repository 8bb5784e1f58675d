package fs

import (
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

const rootIno = uint64(metadata.RootIno)

func TestLookup(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	f := r.create(sim0, "a")
	out := r.lookup(sim0, "a")
	switch {
	case out.NodeId != f.ino || out.Ino != f.ino:
		t.Errorf("node %d, inode %d; want %d", out.NodeId, out.Ino, f.ino)
	case out.Generation == 0:
		t.Error("no generation")
	case out.EntryTimeout() != DefaultCacheTimeout || out.AttrTimeout() != DefaultCacheTimeout:
		t.Errorf("kept for %v and %v", out.EntryTimeout(), out.AttrTimeout())
	}
	missing := r.lookup(sim0, "b")
	if missing.NodeId != 0 || missing.EntryTimeout() != keepShared {
		t.Errorf("a name that is not there: node %d kept for %v", missing.NodeId, missing.EntryTimeout())
	}
	var entry fuse.EntryOut
	h := header(sim0)
	r.want(r.Lookup(nil, &h, strings.Repeat("n", 256), &entry), syscall.ENAMETOOLONG)
	h = header(f.ino)
	r.want(r.Lookup(nil, &h, "x", &entry), syscall.ENOTDIR)
}

// TestLookupDot finds inodes by number, as for a file handle whose inode the kernel has
// dropped.
func TestLookupDot(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	f := r.create(sim0, "a")
	found := r.lookup(f.ino, ".")
	if found.NodeId != f.ino || found.Generation != r.lookup(sim0, "a").Generation {
		t.Errorf("found %d of generation %d", found.NodeId, found.Generation)
	}
	if up := r.lookup(sim0, ".."); up.NodeId != rootIno {
		t.Errorf("the parent of a device is %d", up.NodeId)
	}
	if up := r.lookup(uint64(statsIno), ".."); up.NodeId != uint64(controlIno) {
		t.Errorf("the parent of a control file is %d", up.NodeId)
	}
	var out fuse.EntryOut
	h := header(1 << 40)
	r.want(r.Lookup(nil, &h, ".", &out), syscall.ENOENT)
	h = header(77)
	r.want(r.Lookup(nil, &h, ".", &out), syscall.ENOENT)
}

// TestUnlinkedButReferenced requests the attributes of a file whose last name and handle are
// gone, which the kernel may do until it forgets the inode.
func TestUnlinkedButReferenced(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	f := r.create(sim0, "a")
	f.release()
	h := header(sim0)
	r.ok(r.Unlink(nil, &h, "a"))
	if a := r.stat(f.ino); a.Nlink != 0 {
		t.Errorf("%d links after unlink", a.Nlink)
	}
	r.Forget(f.ino, 1)
	var out fuse.AttrOut
	r.want(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(f.ino)}, &out), syscall.ENOENT)
}

// TestReservedIsRefused tries to change inodes that belong to hmcfs.
func TestReservedIsRefused(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	r.create(sim0, "a")
	var entry fuse.EntryOut
	var attr fuse.AttrOut
	for _, dir := range []uint64{rootIno, uint64(keysIno), uint64(controlIno)} {
		h := header(dir)
		r.want(r.Mkdir(nil, &fuse.MkdirIn{InHeader: h, Mode: 0o755}, "x", &entry), syscall.EPERM)
		r.want(r.Mknod(nil, &fuse.MknodIn{InHeader: h, Mode: syscall.S_IFREG}, "x", &entry), syscall.EPERM)
		r.want(r.Create(nil, &fuse.CreateIn{InHeader: h}, "x", &fuse.CreateOut{}), syscall.EPERM)
		r.want(r.Symlink(nil, &h, "to", "x", &entry), syscall.EPERM)
		r.want(r.Link(nil, &fuse.LinkIn{InHeader: h, Oldnodeid: r.lookup(sim0, "a").NodeId}, "x", &entry), syscall.EPERM)
		r.want(r.Unlink(nil, &h, "x"), syscall.EPERM)
		r.want(r.Rmdir(nil, &h, "sim0"), syscall.EPERM)
		r.want(r.Rename(nil, &fuse.RenameIn{InHeader: h, Newdir: sim0}, "sim1", "x"), syscall.EPERM)
		r.want(r.Rename(nil, &fuse.RenameIn{InHeader: header(sim0), Newdir: dir}, "a", "x"), syscall.EPERM)
		r.want(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h}, "user.x", []byte("1")), syscall.EPERM)
		in := fuse.SetAttrIn{}
		in.NodeId, in.Valid = dir, fuse.FATTR_MODE
		r.want(r.SetAttr(nil, &in, &attr), syscall.EPERM)
	}
	var out fuse.OpenOut
	in := fuse.OpenIn{InHeader: header(uint64(versionIno)), Flags: syscall.O_RDWR}
	r.want(r.Open(nil, &in, &out), syscall.EPERM)
}

func TestControlFiles(t *testing.T) {
	r := newRig(t)
	r.opts.Stats = func() ([]byte, error) { return []byte(`{"n":1}`), nil }
	control := r.lookup(rootIno, controlName)
	for name, want := range map[string]string{
		"version": "v1.2.3\n", "config": "{}\n", "stats": `{"n":1}`,
	} {
		ino := r.lookup(control.NodeId, name).NodeId
		f, out := r.openFile(ino, syscall.O_RDONLY)
		if out.OpenFlags&fuse.FOPEN_DIRECT_IO == 0 {
			t.Errorf("%s is read through the page cache", name)
		}
		if got := string(f.readAt(100, 0)); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
		if got := string(f.readAt(3, 2)); got != want[2:min(5, len(want))] {
			t.Errorf("%s holds %q at 2", name, got)
		}
		if got := f.readAt(10, 1000); len(got) != 0 {
			t.Errorf("%s has %q behind its end", name, got)
		}
		if a := r.stat(ino); a.Size != uint64(len(want)) || a.Mode != syscall.S_IFREG|0o444 {
			t.Errorf("%s: %d bytes, mode %o", name, a.Size, a.Mode)
		}
		f.release()
	}
	r.opts.Config = func() ([]byte, error) { return nil, objects.ErrInvalid }
	var out fuse.OpenOut
	r.want(r.Open(nil, &fuse.OpenIn{InHeader: header(uint64(configIno))}, &out), syscall.EINVAL)
}

func TestKeys(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	var dir fuse.EntryOut
	r.ok(r.Mkdir(nil, &fuse.MkdirIn{InHeader: header(sim0), Mode: 0o755}, "d", &dir))
	f := r.create(dir.NodeId, "tensor")
	set := fuse.SetXAttrIn{InHeader: header(f.ino)}
	r.ok(r.SetXAttr(nil, &set, keyXattr, []byte("layer.0")))

	link := r.lookup(uint64(keysIno), "layer.0")
	if link.NodeId != f.ino|uint64(keyBit) || link.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		t.Errorf("key: node %x, mode %o", link.NodeId, link.Mode)
	}
	if link.EntryTimeout() != 0 || link.AttrTimeout() != 0 {
		t.Error("the kernel may keep a key, which can change without it")
	}
	h := header(link.NodeId)
	target, status := r.Readlink(nil, &h)
	r.ok(status)
	if string(target) != "../sim0/d/tensor" || link.Size != uint64(len(target)) {
		t.Errorf("target %q, size %d", target, link.Size)
	}
	var out fuse.EntryOut
	keys := header(uint64(keysIno))
	r.want(r.Lookup(nil, &keys, "layer.1", &out), syscall.ENOENT)
	r.want(r.Lookup(nil, &keys, "no/key", &out), syscall.ENOENT)
	r.want(r.Unlink(nil, &keys, "layer.0"), syscall.EPERM)
	r.want(r.Link(nil, &fuse.LinkIn{InHeader: header(sim0), Oldnodeid: link.NodeId}, "x", &out), syscall.EPERM)

	own := header(f.ino)
	r.ok(r.RemoveXAttr(nil, &own, keyXattr))
	r.want(r.Lookup(nil, &keys, "layer.0", &out), syscall.ENOENT)
	if _, status := r.Readlink(nil, &h); status != fuse.ENOENT {
		t.Errorf("target of a key that is gone: %v", status)
	}
}

func TestRename(t *testing.T) {
	r := newRig(t)
	sim0, sim1 := r.root("sim0"), r.root("sim1")
	a := r.create(sim0, "a")
	a.write(pattern(3<<20, 1))
	rename := func(from uint64, name string, to uint64, newName string, flags uint32) fuse.Status {
		in := fuse.RenameIn{InHeader: header(from), Newdir: to, Flags: flags}
		return r.Rename(nil, &in, name, newName)
	}
	r.want(rename(sim0, "a", sim1, "b", 0), syscall.EXDEV) // the file is open
	a.release()
	r.want(rename(sim0, "a", sim0, "b", 4), syscall.EINVAL)
	r.want(rename(sim0, "a", sim0, "b", 3), syscall.EINVAL)
	r.want(rename(sim0, "x", sim0, "b", 0), syscall.ENOENT)
	r.ok(rename(sim0, "a", sim1, "b", 0))
	if len(r.kernel.inodes) != 1 || uint64(r.kernel.inodes[0]) != a.ino {
		t.Errorf("the kernel was told of %v", r.kernel.inodes)
	}
	b, _ := r.openFile(r.lookup(sim1, "b").NodeId, syscall.O_RDONLY)
	if b.ino != a.ino {
		t.Errorf("inode %d became %d", a.ino, b.ino)
	}
	if got := b.readAt(1<<20, 1<<20); string(got) != string(pattern(3<<20, 1)[1<<20:2<<20]) {
		t.Error("the bytes differ after the move")
	}
	b.release()
	r.create(sim1, "c").release()
	r.want(rename(sim1, "b", sim1, "c", uint32(metadata.NoReplace)), syscall.EEXIST)
	r.ok(rename(sim1, "b", sim1, "c", uint32(metadata.Exchange)))
	if got := r.lookup(sim1, "c").NodeId; got != a.ino {
		t.Errorf("exchanged name has inode %d, want %d", got, a.ino)
	}
}

// TestRenameWaitsForRelease moves a file while its RELEASE is in transit.
func TestRenameWaitsForRelease(t *testing.T) {
	r := newRig(t)
	sim0, sim1 := r.root("sim0"), r.root("sim1")
	f := r.create(sim0, "a")
	done := make(chan fuse.Status)
	go func() {
		in := fuse.RenameIn{InHeader: header(sim0), Newdir: sim1}
		done <- r.Rename(nil, &in, "a", "a")
	}()
	f.release()
	r.ok(<-done)
}
