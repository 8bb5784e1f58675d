package fs

import (
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// Lookup finds a name and counts one kernel reference. A missing name is answered with
// inode 0, which the kernel caches for a short time.
//
// Errors: ENAMETOOLONG, ENOTDIR.
func (f *filesystem) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opLookup, time.Now(), &status)
	parent := metadata.Ino(header.NodeId)
	if name == "." || name == ".." {
		return f.lookupDot(cancel, header, parent, name, out)
	}
	if n := f.provided(parent); n != nil {
		if done, status := n.lookup(name, out); done {
			return status
		}
	}
	ctx, who, done := f.call(cancel, header, parent)
	defer done()
	a, err := f.tree.Lookup(ctx, who, parent, name)
	if errors.Is(err, metadata.ErrNotExist) {
		return f.lookupMissing(parent, name, out)
	}
	if err != nil {
		return f.errs.status(err)
	}
	return f.enter(parent, out, &a)
}

// enter fills in the answer for an inode and counts the reference that the kernel gets with
// it. The kernel keeps the directory locked until it has the answer, so the name, and with
// it the inode, cannot disappear before the reference is counted.
func (f *filesystem) enter(dir metadata.Ino, out *fuse.EntryOut, a *objects.Attr) fuse.Status {
	f.tree.Reference(a.Ino, 1)
	f.fillEntry(dir, out, a)
	return fuse.OK
}

// lookupDot finds an inode by its number, or its parent. The kernel sends such requests for
// file handles of open_by_handle_at or NFS whose inode it has dropped.
func (f *filesystem) lookupDot(cancel <-chan struct{}, header *fuse.InHeader, ino metadata.Ino, name string, out *fuse.EntryOut) fuse.Status {
	n := f.provided(ino)
	switch {
	case n != nil && name == ".":
		return f.enterProvided(n, out)
	case n != nil:
		view, ok := n.(viewInode)
		if !ok {
			return f.enterProvided(f.provided(n.parent()), out)
		}
		dir, status := view.enterParent(out)
		if dir == 0 {
			return status
		}
		return f.lookupDot(cancel, header, dir, ".", out)
	case ino == metadata.PublishIno && name == "..":
		return f.enterProvided(f.provided(metadata.RootIno), out)
	}
	ctx, who, done := f.call(cancel, header, ino)
	defer done()
	// Count the reference first: no kernel lock holds the inode.
	f.tree.Reference(ino, 1)
	a, err := f.tree.Attr(ctx, who, ino)
	if err == nil && name == "." {
		f.fillEntry(a.Parent, out, &a)
		return fuse.OK
	}
	f.tree.Forget(ino, 1)
	if err != nil {
		return f.ownInodeStatus(err)
	}
	return f.lookupDot(cancel, header, a.Parent, ".", out)
}

// Forget drops references of the kernel.
func (f *filesystem) Forget(nodeid, nlookup uint64) {
	ino := metadata.Ino(nodeid)
	var status fuse.Status
	defer f.ops.done(opForget, time.Now(), &status)
	if n := f.provided(ino); n != nil {
		if c, ok := n.(counted); ok {
			c.forget(nlookup)
		}
		return
	}
	if f.tree.Forget(ino, nlookup) {
		f.fleeting.drop(ino)
	}
}

// GetAttr implements stat.
func (f *filesystem) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) (status fuse.Status) {
	defer f.ops.done(opGetAttr, time.Now(), &status)
	a, status := f.stat(cancel, &in.InHeader)
	if status == fuse.OK {
		f.fillAttrOut(out, &a)
	}
	return status
}

// stat returns the attributes of an inode that has been looked up before.
func (f *filesystem) stat(cancel <-chan struct{}, header *fuse.InHeader) (objects.Attr, fuse.Status) {
	ino := metadata.Ino(header.NodeId)
	if f.fleeting.hasFled(ino) {
		return objects.Attr{}, errStale
	}
	a, err := f.attr(cancel, header, ino)
	if err != nil {
		return objects.Attr{}, f.ownInodeStatus(err)
	}
	return a, fuse.OK
}

// attr returns the current attributes of any inode.
func (f *filesystem) attr(cancel <-chan struct{}, header *fuse.InHeader, ino metadata.Ino) (objects.Attr, error) {
	if n := f.provided(ino); n != nil {
		return n.attr()
	}
	ctx, who, done := f.call(cancel, header, ino)
	defer done()
	return f.tree.Attr(ctx, who, ino)
}

// Statx implements statx, including the birth time, which GetAttr has no room for.
func (f *filesystem) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) (status fuse.Status) {
	defer f.ops.done(opStatx, time.Now(), &status)
	a, status := f.stat(cancel, &in.InHeader)
	if status == fuse.OK {
		fillStatx(&out.Statx, &a)
		out.SetTimeout(f.attrTimeout(&a))
	}
	return status
}

// Access is not called under default_permissions: the kernel checks the modes.
func (f *filesystem) Access(<-chan struct{}, *fuse.AccessIn) (status fuse.Status) {
	defer f.ops.done(opAccess, time.Now(), &status)
	return fuse.OK
}

// Readlink returns the target of a symlink.
func (f *filesystem) Readlink(cancel <-chan struct{}, header *fuse.InHeader) (out []byte, status fuse.Status) {
	defer f.ops.done(opReadlink, time.Now(), &status)
	a, err := f.attr(cancel, header, metadata.Ino(header.NodeId))
	switch {
	case err != nil:
		return nil, f.ownInodeStatus(err)
	case !a.IsSymlink():
		return nil, fuse.EINVAL
	}
	return []byte(a.Target), fuse.OK
}
