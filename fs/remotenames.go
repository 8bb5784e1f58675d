package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// remoteDir is the directory of another node in which a request makes or
// removes a name.
//
// Errors: EPERM for nodes/NODE, whose entries are the devices.
func (f *filesystem) remoteDir(ino uint64) (place, fuse.Status) {
	p, err := f.remotes.find(metadata.Ino(ino))
	switch {
	case err != nil:
		return p, f.errs.status(err)
	case p.isTop():
		return p, fuse.EPERM
	}
	return p, fuse.OK
}

// createRemote makes an inode of any type at another node.
func (f *filesystem) createRemote(cancel <-chan struct{}, header *fuse.InHeader, name string, n metadata.Node, out *fuse.EntryOut) (place, fuse.Status) {
	dir, status := f.remoteDir(header.NodeId)
	if status != fuse.OK {
		return dir, status
	}
	ctx, release := untilKilled(cancel, header.Pid)
	defer release()
	f.names.Add(1)
	a, err := dir.Create(ctx, f.creds.of(&header.Caller), dir.ino, name, n)
	if err != nil {
		return dir, f.errs.status(err)
	}
	made := place{remoteNode: dir.remoteNode, ino: a.Ino}
	return made, f.enterRemote(dir.remoteNode, out, &a)
}

// createOpenRemote makes a regular file at another node and opens it. Where
// the node had the name already without our having known, it opens that, as
// open(2) does without O_EXCL.
func (f *filesystem) createOpenRemote(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	dir, status := f.remoteDir(in.NodeId)
	if status != fuse.OK {
		return status
	}
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	f.names.Add(1)
	n := metadata.Node{Mode: metadata.TypeRegular | metadata.Mode(in.Mode).Perm()}
	a, file, err := dir.CreateOpen(ctx, f.creds.of(&in.Caller), dir.ino, name, n, accessOf(in.Flags))
	if status = f.errs.status(err); status == errExist && in.Flags&unix.O_EXCL == 0 {
		return f.openFound(cancel, dir, in, name, out)
	}
	if status != fuse.OK {
		if a.Ino != 0 {
			f.removeRemote(cancel, &in.InHeader, name, false) // the first failure is the one to tell
		}
		return status
	}
	if status = f.enterRemote(dir.remoteNode, &out.EntryOut, &a); status != fuse.OK {
		_ = file.Close(ctx) // the first failure is the one to tell
		return status
	}
	f.serveRemote(place{remoteNode: dir.remoteNode, ino: a.Ino}, file, in.Flags, a.State == objects.StateBound, &out.OpenOut)
	return fuse.OK
}

// openFound opens a file that was to be made, and was there.
func (f *filesystem) openFound(cancel <-chan struct{}, dir place, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if status := f.lookupRemote(cancel, &in.InHeader, name, &out.EntryOut); status != fuse.OK {
		return status
	}
	status := errExist
	if found := (metadata.Inode{Mode: metadata.Mode(out.Mode)}); found.IsRegular() {
		dir.ino = metadata.Ino(out.NodeId) & (remoteInos - 1)
		status = f.openRemote(cancel, dir, &in.Caller, in.Flags, &out.OpenOut)
	}
	if status != fuse.OK {
		f.remotes.forget(metadata.Ino(out.NodeId), 1)
	}
	return status
}

// linkRemote adds a name to an inode of another node, in a directory of the
// same one.
func (f *filesystem) linkRemote(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if status := refusal(metadata.Ino(in.NodeId), metadata.Ino(in.Oldnodeid)); status != fuse.OK {
		return status
	}
	dir, what, status := f.bothRemote(in.NodeId, in.Oldnodeid)
	switch {
	case status != fuse.OK:
		return status
	case what.isTop():
		return fuse.EPERM
	}
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	f.names.Add(1)
	a, err := dir.Link(ctx, f.creds.of(&in.Caller), what.ino, dir.ino, name)
	if err != nil {
		return f.errs.status(err)
	}
	return f.enterRemote(dir.remoteNode, out, &a)
}

// bothRemote returns a directory and another inode of one node.
//
// Errors: EXDEV when they are of two.
func (f *filesystem) bothRemote(dirIno, otherIno uint64) (dir, other place, status fuse.Status) {
	if !isRemote(metadata.Ino(dirIno)) || !isRemote(metadata.Ino(otherIno)) {
		return dir, other, fuse.EXDEV
	}
	if dir, status = f.remoteDir(dirIno); status != fuse.OK {
		return dir, other, status
	}
	other, err := f.remotes.find(metadata.Ino(otherIno))
	switch {
	case err != nil:
		return dir, other, f.errs.status(err)
	case other.remoteNode != dir.remoteNode:
		return dir, other, fuse.EXDEV
	}
	return dir, other, fuse.OK
}

// removeRemote removes a name, of an empty directory or of anything else.
func (f *filesystem) removeRemote(cancel <-chan struct{}, header *fuse.InHeader, name string, folder bool) fuse.Status {
	dir, status := f.remoteDir(header.NodeId)
	if status != fuse.OK {
		return status
	}
	ctx, release := untilKilled(cancel, header.Pid)
	defer release()
	f.names.Add(1)
	remove := dir.Unlink
	if folder {
		remove = dir.Rmdir
	}
	return f.errs.status(remove(ctx, f.creds.of(&header.Caller), dir.ino, name))
}

// renameRemote moves a name inside one other node. Between nodes it is EXDEV,
// on which mv copies, and so it is into and out of publish/: to hand over to
// another node is what publish and subscribe are for.
func (f *filesystem) renameRemote(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	fromIno, toIno := metadata.Ino(in.NodeId), metadata.Ino(in.Newdir)
	if status := refusal(fromIno, toIno); status != fuse.OK {
		return status
	}
	if toIno == metadata.PublishIno {
		// mv would remove what has the name, and then could not make it.
		return errNotSupported
	}
	to, from, status := f.bothRemote(in.Newdir, in.NodeId)
	switch {
	case status != fuse.OK:
		return status
	case from.isTop():
		return fuse.EPERM
	}
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	f.names.Add(1)
	return f.errs.status(from.Rename(ctx, f.creds.of(&in.Caller), metadata.Rename{
		From: from.ino, Name: oldName, To: to.ino, NewName: newName,
		Flags: metadata.RenameFlags(in.Flags),
	}))
}

// setRemoteAttr is chmod, chown, truncate and utimensat.
func (f *filesystem) setRemoteAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	p, err := f.remotes.find(metadata.Ino(in.NodeId))
	switch {
	case err != nil:
		return f.errs.status(err)
	case p.isTop():
		return fuse.EPERM
	}
	var by *cluster.File
	if fh, ok := in.GetFh(); ok {
		if h, ok := f.files.get(fh); ok && h.remote != nil {
			by = h.remote.File
		}
	}
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	a, err := f.cutBeside(in, func() (objects.Attr, error) {
		return p.SetAttr(ctx, f.creds.of(&in.Caller), p.ino, remoteChangeOf(in), by)
	})
	if err == nil {
		err = p.adopt(&a)
	}
	if err != nil {
		return f.inodeStatus(err)
	}
	fillAttr(&out.Attr, &a)
	out.SetTimeout(keepRemoteAttr(&a))
	return fuse.OK
}

// remoteChangeOf converts a request. What the present is, the owner's clock
// says: UTIME_NOW travels as it does in utimensat(2).
func remoteChangeOf(in *fuse.SetAttrIn) objects.Change {
	c := changeOf(in)
	if in.Valid&fuse.FATTR_ATIME_NOW != 0 && c.Atime != nil {
		c.Atime = &metadata.Timespec{Nsec: unix.UTIME_NOW}
	}
	if in.Valid&fuse.FATTR_MTIME_NOW != 0 && c.Mtime != nil {
		c.Mtime = &metadata.Timespec{Nsec: unix.UTIME_NOW}
	}
	return c
}
