package fs

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// viewer is a file that can expose its bytes in place.
type viewer interface {
	// Views is defined as for objects.File.
	Views(ctx context.Context, off uint64, n int) (objects.Views, error)
}

// fileHandle is one open file: of the tree, of a view, or of .hmcfs/.
type fileHandle struct {
	// open is the file of the tree or, for a view, the file that contains the tensor; nil
	// for a file of .hmcfs/, whose content was produced at open.
	open objects.OpenFile
	// file is open if the file is this node's, else nil.
	file    *objects.File
	content []byte
	// stream is set for .hmcfs/events.
	stream *eventStream
	// src is the source of reads: view, or else open.
	src  source
	view *viewFile
	// mapped is set if the handle counts as one through which the file can be stored to by
	// a map.
	mapped *mapped
	// paged is true if the handle counts in filesystem.shared: the kernel has pages of the
	// file, for maps.
	paged atomic.Bool
	// unmappable is set once the device has refused to expose its memory in place, so that
	// it is not asked again.
	unmappable atomic.Bool
	ahead      readAhead

	// backed is true if the file counts in filesystem.backings; written, if it counts there
	// as open for writing.
	backed, written bool
	// published is true if the file was in publish/ when it was opened, and counts in
	// filesystem.published.
	published bool
}

// isOther reports whether the handle is of a file of another node.
func (h *fileHandle) isOther() bool { return h.open != nil && h.file == nil }

// reads reports whether the handle reads the content of a file.
func (h *fileHandle) reads(ino metadata.Ino) bool { return h.open != nil && h.open.Ino() == ino }

// context returns the context of a request about the file's bytes: if another node is
// asked, it ends when the caller is killed, otherwise it never ends. The caller must call
// done.
func (h *fileHandle) context(cancel <-chan struct{}, pid uint32) (ctx context.Context, done func()) {
	if h.isOther() {
		return untilKilled(cancel, pid)
	}
	return background(), nothingToDo
}

// Open opens a file.
//
// Errors: EPERM for writing to a file of .hmcfs/ or of publish/; ESTALE for a file whose
// name the kernel still caches although it was removed.
func (f *filesystem) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) (status fuse.Status) {
	defer f.ops.done(opOpen, time.Now(), &status)
	ino := metadata.Ino(in.NodeId)
	if n := f.provided(ino); n != nil {
		return n.open(&in.Caller, in.Flags, out)
	}
	status = f.open(cancel, in, out)
	if status == fuse.OK && !isGuest(&in.Caller) && f.mayHaveMissed(ino, out.Fh) && !f.asked.again(in.Pid, ino) {
		f.Release(nil, &fuse.ReleaseIn{InHeader: in.InHeader, Fh: out.Fh})
		return errStale
	}
	if isWriting(in.Flags) && out.OpenFlags&fuse.FOPEN_PASSTHROUGH != 0 {
		// A store through a map causes no request: from here on the size and the times
		// cached by the kernel cannot be trusted.
		f.kernel.InvalidateInode(ino)
	}
	return status
}

func isWriting(flags uint32) bool { return flags&unix.O_ACCMODE != unix.O_RDONLY }

// open opens a file of the tree.
func (f *filesystem) open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	ino := metadata.Ino(in.NodeId)
	if f.fleeting.hasLostName(ino) {
		return errStale
	}
	ctx, who, done := f.call(cancel, &in.InHeader, ino)
	defer done()
	file, err := f.tree.Open(ctx, who, ino, accessOf(in.Flags))
	if err != nil {
		return f.ownInodeStatus(err)
	}
	if !isOwn(ino) {
		// The opened file may be newer than the attributes that the kernel has.
		f.kernel.InvalidateInode(ino)
	}
	return f.serve(file, in.Flags, out)
}

func accessOf(flags uint32) objects.Permission {
	switch flags & unix.O_ACCMODE {
	case unix.O_WRONLY:
		return objects.PermWrite
	case unix.O_RDWR:
		return objects.PermRead | objects.PermWrite
	}
	return objects.PermRead
}

// serve makes a handle of an open file, and closes the file if that fails. Bytes in device
// memory, or on another node, are read and written with direct I/O, since the page cache
// would only add a copy; a map of the file still works, through the page cache
// (DIRECT_IO_ALLOW_MMAP). Closing has nothing to report, so the kernel need not send FLUSH.
func (f *filesystem) serve(file objects.OpenFile, flags uint32, out *fuse.OpenOut) fuse.Status {
	h := &fileHandle{open: file, src: file}
	h.file, _ = file.(*objects.File)
	h.ahead.init(f, file)
	if h.file != nil && h.file.Published() {
		status := f.openPublished(h, flags, out)
		if status != fuse.OK {
			h.ahead.close()
			h.file.Abandon(background())
		}
		return status
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	if h.file != nil {
		if backing := h.file.Backing(); backing != nil {
			f.openBacked(h, backing, isWriting(flags), out)
		}
	}
	if flags&unix.O_ACCMODE == unix.O_RDWR && out.OpenFlags&fuse.FOPEN_PASSTHROUGH == 0 {
		f.mappable.open(file.Ino(), h)
	}
	out.Fh = f.files.put(h)
	return fuse.OK
}

// openBacked lets the kernel serve the file itself where it can. Where it can't, nothing is
// read ahead: the bytes are already in host memory, and reading them sets the file's access
// time, possibly after another process has set it.
func (f *filesystem) openBacked(h *fileHandle, backing *os.File, writing bool, out *fuse.OpenOut) {
	ino := h.file.Ino()
	h.ahead.window = 0
	if h.file.ByDaemon() {
		return
	}
	h.backed, h.written = true, writing
	id := f.backings.acquire(ino, backing, writing)
	if id == 0 {
		return
	}
	if writing {
		h.file.KernelWrites()
	}
	out.OpenFlags = fuse.FOPEN_PASSTHROUGH | fuse.FOPEN_NOFLUSH
	out.BackingID = id
}

// Release closes a handle. The kernel does not wait for it and ignores its result.
func (f *filesystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	status := fuse.OK
	defer f.ops.done(opRelease, time.Now(), &status)
	h, ok := f.files.take(in.Fh)
	if !ok {
		status = fuse.EBADF
		return
	}
	status = f.closeFile(h, in.Fh)
}

// closeFile closes a handle that was removed from the table.
func (f *filesystem) closeFile(h *fileHandle, fh uint64) fuse.Status {
	if h.stream != nil {
		h.stream.close()
		f.streams.leave(h.stream.uid)
	}
	f.mappable.close(h)
	if h.open == nil {
		return fuse.OK
	}
	h.ahead.close()
	if h.paged.Load() && h.view == nil {
		f.shared.unmapped(h.open.Ino())
	}
	if h.published {
		defer f.published.release(h.file.Ino(), fh)
	}
	if h.view != nil {
		f.views.closed(h.view)
	}
	if h.backed {
		f.backings.release(h.file.Ino(), h.written)
	}
	if h.written { // the kernel may have written without a request
		f.changed(h.file.Ino())
	}
	return f.errs.dataStatus(h.open.Close(background()))
}

// fileOf returns the open file of the tree behind a handle. For a view it returns EROFS.
func (f *filesystem) fileOf(fh uint64) (*fileHandle, fuse.Status) {
	h, ok := f.files.get(fh)
	switch {
	case !ok:
		return nil, fuse.EBADF
	case h.open == nil:
		return nil, errNotSupported
	case h.view != nil:
		return nil, fuse.EROFS
	}
	return h, fuse.OK
}

// handleOf returns the open file behind a handle, of the tree or of a view.
func (f *filesystem) handleOf(fh uint64) (*fileHandle, fuse.Status) {
	if h, ok := f.files.get(fh); ok && h.view != nil {
		return h, fuse.OK
	}
	return f.fileOf(fh)
}

// Flush is called for files of publish/ only, so that the name of a received file is gone
// when close(2) returns. For other files there is nothing to do: bytes are in place when a
// write returns.
func (f *filesystem) Flush(_ <-chan struct{}, in *fuse.FlushIn) (status fuse.Status) {
	defer f.ops.done(opFlush, time.Now(), &status)
	if h, ok := f.files.get(in.Fh); ok && h.published {
		h.file.Settle(background())
	}
	return fuse.OK
}

// Fsync writes the object's record. Device memory has no further durability to reach.
func (f *filesystem) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) (status fuse.Status) {
	defer f.ops.done(opFsync, time.Now(), &status)
	h, ok := f.files.get(in.Fh)
	switch {
	case !ok:
		return fuse.EBADF
	case h.open == nil:
		return fuse.OK
	}
	ctx, done := h.context(cancel, in.Pid)
	defer done()
	return f.errs.dataStatus(h.open.Sync(ctx))
}
