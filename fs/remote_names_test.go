package fs

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
)

// TestNodes: the contents of nodes/, none of which users can change.
func TestNodes(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	if names := r.listAll(rootIno); !slices.Contains(names, nodesName) {
		t.Errorf("root holds %v", names)
	}
	nodes := r.dir(nodesName)
	if got := r.listAll(nodes); !slices.Equal(got, []string{".", "..", "b", "c"}) {
		t.Errorf("nodes/ holds %v", got)
	}
	if a := r.stat(nodes); a.Nlink != 2+2 || a.Mode != syscall.S_IFDIR|0o555 {
		t.Errorf("nodes/ has mode %o and %d links", a.Mode, a.Nlink)
	}
	b := r.dir(nodesName, "b")
	names := r.listAll(b)
	slices.Sort(names)
	if want := []string{".", "..", "host", "sim0"}; !slices.Equal(names, want) {
		t.Errorf("nodes/b holds %v, want %v", names, want)
	}
	if a := r.stat(b); a.Ino != b || a.Mode != syscall.S_IFDIR|0o555 {
		t.Errorf("nodes/b is %d with mode %o", a.Ino, a.Mode)
	}
	if again := r.dir(nodesName, "b"); again != b {
		t.Errorf("nodes/b is %#x, then %#x", b, again)
	}
	if c := r.dir(nodesName, "c", "sim0"); c == r.dir(nodesName, "b", "sim0") {
		t.Error("two nodes' directories have one number")
	}
	for _, name := range []string{"a", "z", "..b"} {
		_, status := r.find(nodes, name)
		r.want(status, syscall.ENOENT)
	}
	r.refusesChanges(nodes, b)
}

// refusesChanges tries to change nodes/ and nodes/b.
func (r *remoteRig) refusesChanges(nodes, b uint64) {
	r.t.Helper()
	for _, dir := range []uint64{nodes, b} {
		h := header(dir)
		var out fuse.EntryOut
		r.want(r.Mkdir(nil, &fuse.MkdirIn{InHeader: h, Mode: 0o755}, "x", &out), syscall.EPERM)
		r.want(r.Unlink(nil, &h, "b"), syscall.EPERM)
		r.want(r.Rmdir(nil, &h, "host"), syscall.EPERM)
		r.want(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h}, "user.x", nil), syscall.EPERM)
		r.want(r.SetAttr(nil, &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: h, Valid: fuse.FATTR_MODE}}, &fuse.AttrOut{}), syscall.EPERM)
		r.want(r.Rename(nil, &fuse.RenameIn{InHeader: h, Newdir: b}, "host", "x"), syscall.EPERM)
	}
	status := r.tryOpen(b, uint32(syscall.O_RDONLY))
	r.want(status, syscall.EISDIR)
}

// TestRemoteNames makes, finds, moves and removes names at another node.
func TestRemoteNames(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	sim0 := r.dir(nodesName, "b", "sim0")
	var out fuse.EntryOut
	r.ok(r.Mkdir(nil, &fuse.MkdirIn{InHeader: header(sim0), Mode: 0o750}, "d", &out))
	d := out.NodeId
	if a := r.there("b", "sim0", "d"); a.Mode != metadata.TypeDir|0o750 || metadata.Ino(d)&(cluster.MaxInos-1) != a.Ino {
		t.Errorf("b has a directory %d with mode %o", a.Ino, a.Mode)
	}
	f := r.create(d, "f")
	f.release()
	h := header(d)
	r.ok(r.Symlink(nil, &h, "f", "s", &out))
	link := header(out.NodeId)
	if to, status := r.Readlink(nil, &link); status != fuse.OK || string(to) != "f" {
		t.Errorf("the symlink leads to %q, %v", to, status)
	}
	r.ok(r.Link(nil, &fuse.LinkIn{InHeader: header(d), Oldnodeid: f.ino}, "g", &out))
	if out.NodeId != f.ino || out.Nlink != 2 {
		t.Errorf("a link to %#x is %#x with %d links", f.ino, out.NodeId, out.Nlink)
	}
	r.ok(r.Rename(nil, &fuse.RenameIn{InHeader: header(d), Newdir: sim0}, "g", "moved"))
	if got := r.listAll(d); len(got) != 4 {
		t.Errorf("d holds %v", got)
	}
	r.ok(r.Unlink(nil, &h, "f"))
	_, status := r.find(d, "f")
	r.want(status, syscall.ENOENT)
	top := header(sim0)
	r.want(r.Rmdir(nil, &top, "d"), syscall.ENOTEMPTY)
	r.ok(r.Unlink(nil, &h, "s"))
	r.ok(r.Rmdir(nil, &top, "d"))
	if got := r.listAll(sim0); !slices.Equal(got, []string{".", "..", "moved"}) {
		t.Errorf("sim0 holds %v", got)
	}
}

// TestRemoteRenames: between nodes mv has to copy.
func TestRemoteRenames(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	b, c, own := r.dir(nodesName, "b", "sim0"), r.dir(nodesName, "c", "sim0"), r.dir("sim0")
	r.create(b, "f").release()
	r.create(own, "f").release()
	rename := func(from, to uint64) fuse.Status {
		return r.Rename(nil, &fuse.RenameIn{InHeader: header(from), Newdir: to}, "f", "g")
	}
	r.want(rename(b, own), syscall.EXDEV)
	r.want(rename(own, b), syscall.EXDEV)
	r.want(rename(b, c), syscall.EXDEV)
	r.want(rename(b, uint64(metadata.PublishIno)), syscall.EOPNOTSUPP)
	r.want(rename(b, uint64(keysIno)), syscall.EPERM)
	r.want(r.Rename(nil, &fuse.RenameIn{InHeader: header(b), Newdir: b, Flags: 64}, "f", "g"), syscall.EINVAL)
	ino := r.lookup(b, "f").NodeId
	var out fuse.EntryOut
	r.want(r.Link(nil, &fuse.LinkIn{InHeader: header(c), Oldnodeid: ino}, "g", &out), syscall.EXDEV)
	r.want(r.Link(nil, &fuse.LinkIn{InHeader: header(own), Oldnodeid: ino}, "g", &out), syscall.EXDEV)
	r.ok(rename(b, r.dir(nodesName, "b", "host")))
}

// TestRemoteListing lists a directory of several pages, and goes back in it.
func TestRemoteListing(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	b := r.Node("b")
	want := map[string]bool{".": true, "..": true}
	for i := range 5000 {
		name := fmt.Sprintf("file%04d", i)
		_, err := b.Store.Create(t.Context(), b.Dir("sim0"), name, metadata.Node{Mode: metadata.TypeRegular | 0o644})
		must(t, err)
		want[name] = true
	}
	sim0 := r.dir(nodesName, "b", "sim0")
	before := r.opts.Cluster.Stats().Questions
	names := r.listAll(sim0)
	if asked := r.opts.Cluster.Stats().Questions - before; asked > 4 {
		t.Errorf("%d questions for %d entries", asked, len(names))
	}
	got := map[string]bool{}
	for _, name := range names {
		got[name] = true
	}
	if len(names) != len(want) || !maps.Equal(got, want) {
		t.Fatalf("%d names, %d of them different, want %d", len(names), len(got), len(want))
	}
	fh := r.openDir(sim0)
	defer r.ReleaseDir(&fuse.ReleaseIn{Fh: fh})
	all := r.entriesAt(sim0, fh, 0, 1<<20)
	for _, i := range []int{4000, 17, 2047, 2048, 0} {
		rest := r.entriesAt(sim0, fh, all[i].Off, 512)
		if len(rest) == 0 || rest[0].Name != all[i+1].Name || rest[0].Ino != all[i+1].Ino {
			t.Fatalf("behind entry %d comes %v, want %q", i, rest, all[i+1].Name)
		}
	}
	if all[0].Ino != sim0 || all[1].Ino != r.dir(nodesName, "b") {
		t.Errorf(". is %#x and .. is %#x of %#x", all[0].Ino, all[1].Ino, sim0)
	}
}

// TestRemoteAttributes changes attributes, plain and extended.
func TestRemoteAttributes(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	f := r.create(r.dir(nodesName, "b", "sim0"), "f")
	defer f.release()
	f.write(pattern(9000, 1))
	set := func(in fuse.SetAttrInCommon) fuse.Attr {
		t.Helper()
		in.InHeader = header(f.ino)
		var out fuse.AttrOut
		r.ok(r.SetAttr(nil, &fuse.SetAttrIn{SetAttrInCommon: in}, &out))
		return out.Attr
	}
	if a := set(fuse.SetAttrInCommon{Valid: fuse.FATTR_MODE, Mode: 0o601}); a.Mode != syscall.S_IFREG|0o601 || a.Ino != f.ino {
		t.Errorf("mode %o of %#x", a.Mode, a.Ino)
	}
	if a := set(fuse.SetAttrInCommon{Valid: fuse.FATTR_SIZE | fuse.FATTR_FH, Fh: f.fh, Size: 5000}); a.Size != 5000 {
		t.Errorf("size %d", a.Size)
	}
	if a := r.stat(f.ino); a.Size != 5000 || a.Blocks*512 < 5000 || a.Blksize != fileIOSize {
		t.Errorf("size %d in %d blocks of %d", a.Size, a.Blocks, a.Blksize)
	}
	if a := set(fuse.SetAttrInCommon{Valid: fuse.FATTR_MTIME, Mtime: 1000, Mtimensec: 7}); a.Mtime != 1000 || a.Mtimensec != 7 {
		t.Errorf("mtime %d.%d", a.Mtime, a.Mtimensec)
	}
	var x fuse.StatxOut
	r.ok(r.Statx(nil, &fuse.StatxIn{InHeader: header(f.ino)}, &x))
	if x.Ino != f.ino || x.Size != 5000 || x.Btime.Sec == 0 {
		t.Errorf("statx: %d bytes of %#x, born %d", x.Size, x.Ino, x.Btime.Sec)
	}
	var st fuse.StatfsOut
	h := header(f.ino)
	r.ok(r.StatFs(nil, &h, &st))
	if total := st.Blocks * uint64(st.Frsize); total != 64<<20 || st.Bfree >= st.Blocks {
		t.Errorf("the device has %d bytes, %d of %d blocks free", total, st.Bfree, st.Blocks)
	}
	r.remoteXattrs(f.ino)
}

// remoteXattrs uses extended attributes of a file.
func (r *remoteRig) remoteXattrs(ino uint64) {
	r.t.Helper()
	h := header(ino)
	r.ok(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h}, "user.hmc.dtype", []byte("float32")))
	r.want(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h, Flags: unix.XATTR_CREATE}, "user.hmc.dtype", []byte("float16")), syscall.EEXIST)
	p := make([]byte, 64)
	n, status := r.GetXAttr(nil, &h, "user.hmc.dtype", p)
	if status != fuse.OK || string(p[:n]) != "float32" {
		r.t.Errorf("dtype is %q, %v", p[:n], status)
	}
	n, status = r.ListXAttr(nil, &h, make([]byte, 4096))
	if status != fuse.OK || n == 0 {
		r.t.Errorf("%d bytes of names, %v", n, status)
	}
	_, status = r.GetXAttr(nil, &h, "user.hmc.handle", p)
	r.want(status, syscall.EOPNOTSUPP)
	r.want(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h}, "user.hmc.bind", []byte("{}")), syscall.EOPNOTSUPP)
	r.want(r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h}, "security.capability", nil), syscall.EOPNOTSUPP)
	r.ok(r.RemoveXAttr(nil, &h, "user.hmc.dtype"))
	_, status = r.GetXAttr(nil, &h, "user.hmc.dtype", p)
	r.want(status, syscall.ENODATA)
}
