package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// create makes an inode of any type. The kernel has applied the caller's umask; the store
// applies the rules of set-group-id directories.
//
// Errors: EPERM where only hmcfs makes names; those of the store.
func (f *filesystem) create(cancel <-chan struct{}, header *fuse.InHeader, name string, n metadata.Node, out *fuse.EntryOut) fuse.Status {
	parent := metadata.Ino(header.NodeId)
	if status := f.refusal(parent); status != fuse.OK {
		return status
	}
	ctx, who, done := f.call(cancel, header, parent)
	defer done()
	f.names.Add(1)
	a, err := f.tree.Create(ctx, who, parent, name, n)
	if err != nil {
		return f.errs.status(err)
	}
	return f.enter(parent, out, &a)
}

// Mknod makes a file or a special file.
func (f *filesystem) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opMknod, time.Now(), &status)
	n := metadata.Node{Mode: metadata.Mode(in.Mode), Rdev: in.Rdev}
	return f.create(cancel, &in.InHeader, name, n, out)
}

// Mkdir makes a directory.
func (f *filesystem) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opMkdir, time.Now(), &status)
	n := metadata.Node{Mode: metadata.TypeDir | metadata.Mode(in.Mode).Perm()}
	return f.create(cancel, &in.InHeader, name, n, out)
}

// Symlink makes a symlink.
func (f *filesystem) Symlink(cancel <-chan struct{}, header *fuse.InHeader, target, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opSymlink, time.Now(), &status)
	if len(target) > metadata.MaxTarget {
		return errNameTooLong
	}
	n := metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: target}
	return f.create(cancel, header, name, n, out)
}

// Link adds a name to an inode of the same device.
//
// Errors: EPERM, EEXIST, EXDEV, EMLINK.
func (f *filesystem) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opLink, time.Now(), &status)
	parent, ino := metadata.Ino(in.NodeId), metadata.Ino(in.Oldnodeid)
	if status := f.refusal(ino, parent); status != fuse.OK {
		return status
	}
	ctx, who, done := f.call(cancel, &in.InHeader, ino, parent)
	defer done()
	f.names.Add(1)
	a, err := f.tree.Link(ctx, who, ino, parent, name)
	if err != nil {
		return f.errs.status(err)
	}
	return f.enter(parent, out, &a)
}

// Create makes a regular file and opens it.
func (f *filesystem) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) (status fuse.Status) {
	defer f.ops.done(opCreate, time.Now(), &status)
	parent := metadata.Ino(in.NodeId)
	if status = f.refusal(parent); status != fuse.OK {
		return status
	}
	ctx, who, done := f.call(cancel, &in.InHeader, parent)
	defer done()
	f.names.Add(1)
	a, file, err := f.tree.CreateOpen(ctx, who, parent, name, objects.NewFile{
		Mode: metadata.Mode(in.Mode).Perm(), Want: accessOf(in.Flags), Existing: in.Flags&unix.O_EXCL == 0,
	})
	if err != nil {
		return f.errs.status(err)
	}
	f.tree.Reference(a.Ino, 1)
	if status = f.serve(file, in.Flags, &out.OpenOut); status != fuse.OK {
		// The kernel does not know of the file yet.
		f.tree.Forget(a.Ino, 1)
		return status
	}
	f.fillEntry(parent, &out.EntryOut, &a)
	return fuse.OK
}

// Tmpfile is not supported: a program that asks for O_TMPFILE then creates a file and
// unlinks it.
func (f *filesystem) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) (status fuse.Status) {
	defer f.ops.done(opTmpfile, time.Now(), &status)
	return errNotSupported
}
