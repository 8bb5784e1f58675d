package fs

import (
	"context"
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
)

// Unlink removes a name.
func (f *filesystem) Unlink(_ <-chan struct{}, header *fuse.InHeader, name string) (status fuse.Status) {
	defer f.ops.done(opUnlink, time.Now(), &status)
	parent := metadata.Ino(header.NodeId)
	if isReserved(parent) {
		return fuse.EPERM
	}
	f.names.Add(1)
	return f.errs.status(f.store.Unlink(background(), parent, name))
}

// Rmdir removes an empty directory.
func (f *filesystem) Rmdir(_ <-chan struct{}, header *fuse.InHeader, name string) (status fuse.Status) {
	defer f.ops.done(opRmdir, time.Now(), &status)
	parent := metadata.Ino(header.NodeId)
	if isReserved(parent) {
		return fuse.EPERM
	}
	f.names.Add(1)
	return f.errs.status(f.store.Rmdir(background(), parent, name))
}

const (
	// releaseWait is how long Rename waits for a handle that is on its way
	// to be released, releasePoll how often it looks.
	releaseWait = 50 * time.Millisecond
	releasePoll = time.Millisecond
)

// Rename moves a name, to another device too.
//
// Errors: EPERM, EINVAL for flags other than NOREPLACE and EXCHANGE, EXDEV
// for what can't change its device: directories, files with several names,
// open files, exchanges; EINTR when a signal that ends the caller stopped a
// move between devices, which has changed nothing then.
func (f *filesystem) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) (status fuse.Status) {
	defer f.ops.done(opRename, time.Now(), &status)
	r := metadata.Rename{
		From: metadata.Ino(in.NodeId), Name: oldName,
		To: metadata.Ino(in.Newdir), NewName: newName,
		Flags: metadata.RenameFlags(in.Flags),
	}
	switch {
	case isReserved(r.From) || isReserved(r.To):
		return fuse.EPERM
	case r.Flags&^(metadata.NoReplace|metadata.Exchange) != 0,
		r.Flags == metadata.NoReplace|metadata.Exchange:
		return fuse.EINVAL
	}
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	err := f.rename(ctx, r)
	if err == nil && r.From != r.To {
		f.moved(r)
	}
	return f.errs.status(err)
}

// rename moves a name. A program that closes a file and then moves it to
// another device would see EXDEV by chance, since the kernel does not wait
// for its own RELEASE; so this does.
func (f *filesystem) rename(ctx context.Context, r metadata.Rename) error {
	deadline := time.Now().Add(releaseWait)
	for {
		f.names.Add(1)
		err := f.store.Rename(ctx, r)
		if !errors.Is(err, metadata.ErrCrossDevice) || !f.isOpen(r.From, r.Name) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(releasePoll)
	}
}

// isOpen says whether the kernel holds a handle of the file.
func (f *filesystem) isOpen(parent metadata.Ino, name string) bool {
	a, err := f.store.Lookup(background(), parent, name)
	return err == nil && a.IsRegular() && f.files.any(func(h *fileHandle) bool {
		return h.file != nil && h.file.Ino() == a.Ino
	})
}

// moved tells the kernel that a file's attributes may have changed with its
// device, such as the blocks that it takes, which a rename does not do in
// other filesystems.
func (f *filesystem) moved(r metadata.Rename) {
	if a, err := f.store.Lookup(background(), r.To, r.NewName); err == nil && a.IsRegular() {
		f.kernel.InvalidateInode(a.Ino)
	}
}
