package fs

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// create makes an inode of any type. The kernel has applied the caller's
// umask; the store applies what a set-group-id directory asks for.
//
// Errors: EPERM where names are hmcfs's own to make; those of the store.
func (f *filesystem) create(cancel <-chan struct{}, header *fuse.InHeader, name string, n metadata.Node, out *fuse.EntryOut) (objects.Attr, fuse.Status) {
	parent := metadata.Ino(header.NodeId)
	if isRemote(parent) {
		_, status := f.createRemote(cancel, header, name, n, out)
		return objects.Attr{}, status
	}
	if status := refusal(parent); status != fuse.OK {
		return objects.Attr{}, status
	}
	n.UID, n.GID = header.Uid, header.Gid
	f.names.Add(1)
	a, err := f.store.Create(background(), parent, name, n)
	if err != nil {
		return objects.Attr{}, f.errs.status(err)
	}
	return a, f.enter(parent, out, &a)
}

// Mknod makes a file or a special file.
func (f *filesystem) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opMknod, time.Now(), &status)
	n := metadata.Node{Mode: metadata.Mode(in.Mode), Rdev: in.Rdev}
	_, status = f.create(cancel, &in.InHeader, name, n, out)
	return status
}

// Mkdir makes a directory.
func (f *filesystem) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opMkdir, time.Now(), &status)
	n := metadata.Node{Mode: metadata.TypeDir | metadata.Mode(in.Mode).Perm()}
	_, status = f.create(cancel, &in.InHeader, name, n, out)
	return status
}

// Symlink makes a symlink.
func (f *filesystem) Symlink(cancel <-chan struct{}, header *fuse.InHeader, target, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opSymlink, time.Now(), &status)
	if len(target) > metadata.MaxTarget {
		return errNameTooLong
	}
	n := metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: target}
	_, status = f.create(cancel, header, name, n, out)
	return status
}

// Link adds a name to an inode of the same device.
//
// Errors: EPERM, EEXIST, EXDEV, EMLINK.
func (f *filesystem) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	defer f.ops.done(opLink, time.Now(), &status)
	parent, ino := metadata.Ino(in.NodeId), metadata.Ino(in.Oldnodeid)
	if isRemote(parent) || isRemote(ino) {
		return f.linkRemote(cancel, in, name, out)
	}
	if status := refusal(ino, parent); status != fuse.OK {
		return status
	}
	f.names.Add(1)
	a, err := f.store.Link(background(), ino, parent, name)
	if err != nil {
		return f.errs.status(err)
	}
	return f.enter(parent, out, &a)
}

// Create makes a regular file and opens it.
func (f *filesystem) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) (status fuse.Status) {
	defer f.ops.done(opCreate, time.Now(), &status)
	if isRemote(metadata.Ino(in.NodeId)) {
		return f.createOpenRemote(cancel, in, name, out)
	}
	n := metadata.Node{Mode: metadata.TypeRegular | metadata.Mode(in.Mode).Perm()}
	a, status := f.create(cancel, &in.InHeader, name, n, &out.EntryOut)
	if status != fuse.OK {
		return status
	}
	if status = f.open(a.Ino, &in.Caller, in.Flags, &out.OpenOut); status != fuse.OK {
		f.undoCreate(metadata.Ino(in.NodeId), name, a.Ino)
		return status
	}
	// The attributes may have to be asked for again, now that it is open.
	f.fillEntry(metadata.Ino(in.NodeId), &out.EntryOut, &a)
	return fuse.OK
}

// undoCreate removes a file that could not be opened. The kernel has not
// heard of it.
func (f *filesystem) undoCreate(parent metadata.Ino, name string, ino metadata.Ino) {
	f.names.Add(1)
	if err := f.store.Unlink(background(), parent, name); err != nil {
		f.errs.warn(syscall.EIO, "a file that could not be opened could not be removed", err)
	}
	f.store.Forget(ino, 1)
}

// Tmpfile is not supported: a program that asks for O_TMPFILE makes a file
// and unlinks it instead.
func (f *filesystem) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) (status fuse.Status) {
	defer f.ops.done(opTmpfile, time.Now(), &status)
	return errNotSupported
}
