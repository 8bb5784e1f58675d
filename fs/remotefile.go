package fs

import (
	"context"
	"fmt"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport"
)

// remoteFile is the content of an open file of another node.
type remoteFile struct {
	*cluster.File
	// at is its number here.
	at metadata.Ino
	// foreign says that the owner's file is memory of a process, which changes
	// without anybody's being told.
	foreign bool
}

var _ content = (*remoteFile)(nil)

// Accessed does nothing: the owner has noted it with the read.
func (*remoteFile) Accessed() {}

// Foreign says whether somebody writes the bytes without the owner's store.
func (r *remoteFile) Foreign() bool { return r.foreign }

// PinSlot does nothing: what arrives from another node is the host's.
func (*remoteFile) PinSlot(*transport.Slot) {}

// Views are not there.
func (*remoteFile) Views(context.Context, uint64, int) (objects.Views, error) {
	return objects.Views{}, fmt.Errorf("map a file of another node: %w", devices.ErrUnsupported)
}

// openRemote opens a file of another node. It is read and written past the page
// cache; maps go through it, and their pages are dropped when the owner says
// that the content has changed.
func (f *filesystem) openRemote(cancel <-chan struct{}, p place, who *fuse.Caller, flags uint32, out *fuse.OpenOut) fuse.Status {
	if p.isTop() {
		return fuse.EISDIR
	}
	ctx, release := untilKilled(cancel, who.Pid)
	defer release()
	cred := f.creds.of(who)
	file, err := p.Open(ctx, cred, p.ino, accessOf(flags))
	if err != nil {
		return f.inodeStatus(err)
	}
	// What was opened may be newer than what the kernel was told.
	f.kernel.InvalidateInode(p.number(p.ino))
	// The answer to the opening had the attributes, so nobody is asked.
	a, err := p.Attr(ctx, cred, p.ino)
	f.serveRemote(p, file, flags, err == nil && a.State == objects.StateBound, out)
	return fuse.OK
}

// serveRemote makes a handle of an open file of another node.
func (f *filesystem) serveRemote(p place, file *cluster.File, flags uint32, foreign bool, out *fuse.OpenOut) {
	r := &remoteFile{File: file, at: p.number(p.ino), foreign: foreign}
	h := &fileHandle{remote: r, src: r}
	h.unmappable.Store(true)
	h.ahead.init(f, r)
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	f.openMappable(h, r.at, flags, out)
	out.Fh = f.files.put(h)
}

// accessOf converts the flags of open(2).
func accessOf(flags uint32) objects.Permission {
	switch flags & unix.O_ACCMODE {
	case unix.O_WRONLY:
		return objects.PermWrite
	case unix.O_RDWR:
		return objects.PermRead | objects.PermWrite
	}
	return objects.PermRead
}

// dataStatus is the answer to what was asked of an open file and ended with
// err. That its node can't be reached is EIO: programs know that of a read or a
// write, and EHOSTUNREACH they don't.
func (f *filesystem) dataStatus(err error) fuse.Status {
	status := f.errs.status(err)
	if status == fuse.Status(syscall.EHOSTUNREACH) {
		f.errs.warn(syscall.EIO, "file of another node failed", err)
		return fuse.EIO
	}
	return status
}

// writer is an open file that takes bytes.
type writer interface {
	WriteAt(ctx context.Context, p []byte, w objects.Write) (int, error)
}

// copyRemote copies between two files of which one at least is another node's.
//
// Errors: EOPNOTSUPP where the other one has a content that is made while it
// is read, or that is received by reading it; the kernel then reads and writes.
func (f *filesystem) copyRemote(ctx context.Context, dst, src *fileHandle, in *fuse.CopyFileRangeIn) (uint64, error) {
	to, ok := endOf(dst, in.OffOut)
	if !ok {
		return 0, fmt.Errorf("copy into what can't be written: %w", objects.ErrUnsupported)
	}
	from, ok := endOf(src, in.OffIn)
	if !ok {
		return 0, fmt.Errorf("copy what is no plain file: %w", objects.ErrUnsupported)
	}
	n, err := f.opts.Cluster.Copy(ctx, to, from, min(in.Len, maxCopy))
	if n > 0 && to.Local != nil {
		f.changed(to.Local.Ino())
	}
	return n, err
}

// endOf is one end of a copy.
func endOf(h *fileHandle, off uint64) (cluster.End, bool) {
	switch {
	case h.remote != nil:
		return cluster.End{Remote: h.remote.File, Off: off}, true
	case h.file == nil || h.view != nil || h.published:
		return cluster.End{}, false
	}
	return cluster.End{Local: h.file, Off: off}, true
}
