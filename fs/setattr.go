package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// settable is the set of SETATTR bits that select something to set. The others are
// modifiers.
const settable = fuse.FATTR_MODE | fuse.FATTR_UID | fuse.FATTR_GID |
	fuse.FATTR_SIZE | fuse.FATTR_ATIME | fuse.FATTR_MTIME | fuse.FATTR_CTIME

// SetAttr implements chmod, chown, truncate and utimensat.
//
// Errors: EPERM for what belongs to hmcfs, EFBIG, ENOSPC, EIO.
func (f *filesystem) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) (status fuse.Status) {
	defer f.ops.done(opSetAttr, time.Now(), &status)
	ino := metadata.Ino(in.NodeId)
	f.storedBefore(in)
	f.readBefore(cancel, in)
	if status := f.ownRefusal(ino); status != fuse.OK {
		return status
	}
	if in.Valid&fuse.FATTR_SIZE != 0 {
		if status := f.cutRefusal(ino); status != fuse.OK {
			return status
		}
	}
	var by objects.OpenFile
	if fh, ok := in.GetFh(); ok {
		if h, ok := f.files.get(fh); ok {
			by = h.open
		}
	}
	ctx, who, done := f.call(cancel, &in.InHeader, ino)
	defer done()
	set := func() (objects.Attr, error) { return f.tree.SetAttr(ctx, who, ino, changeOf(in), by) }
	a, err := f.cutBeside(in, set)
	if err != nil {
		return f.ownInodeStatus(err)
	}
	if in.Valid&fuse.FATTR_SIZE != 0 {
		f.changed(ino)
	}
	f.fillAttrOut(out, &a)
	return fuse.OK
}

// cutBeside calls set, taking stores through maps into account where it changes the length
// of a file.
func (f *filesystem) cutBeside(in *fuse.SetAttrIn, set func() (objects.Attr, error)) (objects.Attr, error) {
	if size, ok := in.GetSize(); ok {
		if m := f.mappable.of(metadata.Ino(in.NodeId)); m != nil {
			return m.cut(size, set)
		}
	}
	return set()
}

// storedBefore makes the kernel write back stores through maps before mtime is set. Without
// WRITEBACK_CACHE it does not do so itself, and pages written later would set the time to
// theirs. A truncation is left alone: until it is answered the kernel writes no page of the
// inode.
func (f *filesystem) storedBefore(in *fuse.SetAttrIn) {
	ino := metadata.Ino(in.NodeId)
	if in.Valid&fuse.FATTR_MTIME != 0 && in.Valid&fuse.FATTR_SIZE == 0 && f.shared.hasPages(ino) {
		f.kernel.InvalidatePages(ino)
	}
}

// readBefore waits for read-ahead of a file to complete before its atime is set: the access
// time of a host file is updated by the kernel when the file is read, and that of another
// node's file by its owner, so the reads would reset it to the present.
func (f *filesystem) readBefore(cancel <-chan struct{}, in *fuse.SetAttrIn) {
	if in.Valid&fuse.FATTR_ATIME == 0 {
		return
	}
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	for _, h := range f.files.all() {
		if h.reads(metadata.Ino(in.NodeId)) {
			h.ahead.settle(ctx)
		}
	}
}

// changeOf converts a request.
//
// With a request that selects nothing to set the kernel asks for set-id bits to be cleared:
// it found them before a write that it does itself (passthrough) or before fallocate and
// copy_file_range, and since hmcfs has declared that it clears them (HANDLE_KILLPRIV_V2),
// the kernel has removed the mode from the request.
func changeOf(in *fuse.SetAttrIn) objects.Change {
	c := objects.Change{
		KillPriv: in.Valid&fuse.FATTR_KILL_SUIDGID != 0 || in.Valid&settable == 0,
	}
	if mode, ok := in.GetMode(); ok {
		perm := metadata.Mode(mode)
		c.Mode = &perm
	}
	if uid, ok := in.GetUID(); ok {
		c.UID = &uid
	}
	if gid, ok := in.GetGID(); ok {
		c.GID = &gid
	}
	if size, ok := in.GetSize(); ok {
		c.Size = &size
	}
	c.Atime = timeOf(in.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec)
	c.Mtime = timeOf(in.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec)
	c.Ctime = timeOf(in.Valid, fuse.FATTR_CTIME, 0, in.Ctime, in.Ctimensec)
	return c
}

// timeOf returns the time to set, or nil. The present is returned as UTIME_NOW, since the
// owner's clock determines it.
func timeOf(valid, set, setNow uint32, sec uint64, nsec uint32) *metadata.Timespec {
	switch {
	case valid&set == 0:
		return nil
	case valid&setNow != 0:
		return &metadata.Timespec{Nsec: unix.UTIME_NOW}
	}
	return &metadata.Timespec{Sec: int64(sec), Nsec: nsec}
}
