package fs

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// Unlink removes a name.
func (f *filesystem) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) (status fuse.Status) {
	defer f.ops.done(opUnlink, time.Now(), &status)
	return f.remove(cancel, header, name, f.tree.Unlink)
}

// Rmdir removes an empty directory.
func (f *filesystem) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) (status fuse.Status) {
	defer f.ops.done(opRmdir, time.Now(), &status)
	return f.remove(cancel, header, name, f.tree.Rmdir)
}

func (f *filesystem) remove(
	cancel <-chan struct{}, header *fuse.InHeader, name string,
	remove func(ctx context.Context, who objects.Caller, dir metadata.Ino, name string) error,
) fuse.Status {
	parent := metadata.Ino(header.NodeId)
	if status := f.refusal(parent); status != fuse.OK {
		return status
	}
	ctx, who, done := f.call(cancel, header, parent)
	defer done()
	if isOwn(parent) {
		who = f.guests.unchecked(&header.Caller)
	}
	f.names.Add(1)
	return f.removed(remove(ctx, who, parent, name), parent, name)
}

// removed answers the removal of a name, or its move away, that returned err: a view
// exists, although the store does not have it.
func (f *filesystem) removed(err error, parent metadata.Ino, name string) fuse.Status {
	if isMissing(err) && f.views.isViewName(parent, name) {
		return fuse.EROFS
	}
	return f.errs.status(err)
}

// Rename moves a name, possibly to another device.
//
// A rename into publish/ publishes a file, and a rename out of it receives one.
//
// Errors: EPERM, EINVAL for flags other than NOREPLACE and EXCHANGE, EXDEV for what cannot
// change its device: directories, files with several names, open files, exchanges; EINTR
// when a fatal signal to the caller stopped a move between devices, which has then changed
// nothing. Publishing never returns EXDEV, on which mv would remove the target and create
// another: it is EBUSY for a file that is open, mapped or not hmcfs's, EISDIR, EMLINK.
func (f *filesystem) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) (status fuse.Status) {
	defer f.ops.done(opRename, time.Now(), &status)
	r := metadata.Rename{
		From: metadata.Ino(in.NodeId), Name: oldName,
		To: metadata.Ino(in.Newdir), NewName: newName,
		Flags: metadata.RenameFlags(in.Flags),
	}
	if status := f.refusal(r.From, r.To); status != fuse.OK {
		return status
	}
	if r.Flags&^(metadata.NoReplace|metadata.Exchange) != 0 || r.Flags == metadata.NoReplace|metadata.Exchange {
		return fuse.EINVAL
	}
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	who := f.guests.unchecked(&in.Caller)
	if !isOwn(r.From) || !isOwn(r.To) {
		who = f.creds.of(&in.Caller)
	}
	f.names.Add(1)
	rename := func() error {
		moved, err := f.tree.Rename(ctx, who, r)
		if moved != 0 {
			// Its attributes may have changed with its device, such as the number of
			// blocks, which a rename does not change in other filesystems.
			f.kernel.InvalidateInode(moved)
		}
		return err
	}
	switch {
	case r.To == metadata.PublishIno && isOwn(r.From):
		return f.publish(r, rename)
	case r.From == metadata.PublishIno:
		return f.receive(r, rename)
	}
	return f.removed(rename(), r.From, r.Name)
}

// publish moves a file into publish/. The kernel moves the name that it caches along, and
// the file can be received before this returns.
func (f *filesystem) publish(r metadata.Rename, rename func() error) fuse.Status {
	a, err := f.store.Lookup(background(), r.From, r.Name)
	if err != nil {
		return f.removed(err, r.From, r.Name) // also for views
	}
	f.asked.forget(a.Ino)
	before, known := f.fleeting.enters(a.Ino)
	if err = rename(); err != nil {
		if now, fault := f.store.Attr(background(), a.Ino); fault != nil || !isPublished(&now) { // another caller has published it
			f.fleeting.staysOut(a.Ino, before, known)
		}
		return f.errs.status(err)
	}
	f.kernel.InvalidateInode(a.Ino)
	return fuse.OK
}

// receive moves a file out of publish/.
func (f *filesystem) receive(r metadata.Rename, rename func() error) fuse.Status {
	a, err := f.store.Lookup(background(), r.From, r.Name)
	if err != nil {
		return f.errs.status(err)
	}
	f.fleeting.leaves(a.Ino)
	if err = rename(); err != nil {
		return f.errs.status(err)
	}
	f.fleeting.isOut(a.Ino)
	return fuse.OK
}
