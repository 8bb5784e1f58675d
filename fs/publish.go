package fs

import (
	"context"
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

func isPublished(a *objects.Attr) bool {
	return a.Parent == metadata.PublishIno && a.IsRegular()
}

// ownRefusal returns the status that refuses a change of an inode itself: users can change
// publish/ as little as reserved inodes.
func (f *filesystem) ownRefusal(ino metadata.Ino) fuse.Status {
	if ino == metadata.PublishIno {
		return fuse.EPERM
	}
	return f.refusal(ino)
}

// cutRefusal returns the status that refuses setting a file's size: published files are
// immutable.
func (f *filesystem) cutRefusal(ino metadata.Ino) fuse.Status {
	a, err := f.store.Attr(background(), ino)
	if err == nil && isPublished(&a) {
		return fuse.EPERM
	}
	return fuse.OK
}

// mayHaveMissed reports whether a file that was opened as an unpublished one may have been
// in publish/ when its name was looked up.
func (f *filesystem) mayHaveMissed(ino metadata.Ino, fh uint64) bool {
	if !f.fleeting.mayHaveLeft(ino) {
		return false
	}
	h, ok := f.files.get(fh)
	return ok && !h.published
}

// openPublished finishes opening a file of publish/. The kernel never serves it itself, and
// keeps none of its pages for the next opener, so that every byte that is read is
// requested. Closing has something to report: the kernel sends FLUSH.
//
// Errors: EPERM for writing; EBUSY while another handle has it mapped.
func (f *filesystem) openPublished(h *fileHandle, flags uint32, out *fuse.OpenOut) fuse.Status {
	if isWriting(flags) {
		return fuse.EPERM
	}
	ino := h.file.Ino()
	if !f.published.open(ino) {
		return fuse.EBUSY
	}
	h.published = true
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	out.Fh = f.files.put(h)
	return fuse.OK
}

// deliver records that an answer is about to be sent to a reader, which may thereby have
// received the file. Bytes that the kernel requests without naming the reader go to its
// pages, which are those of a map or of sendfile.
//
// Errors: EIO when another reader has received the file, or has it open while pages would
// be shared by all openers.
func (p *published) deliver(cancel <-chan struct{}, h *fileHandle, in *fuse.ReadIn, n int) fuse.Status {
	if in.ReadFlags&fuse.READ_LOCKOWNER == 0 && !p.mapped(h.file.Ino(), in.Fh) {
		return fuse.EIO
	}
	// It may wait for another reader that is about to receive the file but may still fail.
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	return p.delivered(h.file.Deliver(ctx, in.Offset, n))
}

// delivered converts the error of a delivery: a file that another reader has received is a
// read error, not a missing name.
func (p *published) delivered(err error) fuse.Status {
	if errors.Is(err, metadata.ErrNotExist) {
		return fuse.EIO
	}
	return p.errs.status(err)
}

// copyPublished copies from a file of publish/. A second reader must never get all of the
// bytes, and no caller may have received data for which the target has no room. So the last
// byte is copied only once the file is the caller's, and its room is allocated before.
func (p *published) copyPublished(ctx context.Context, src *fileHandle, r objects.CopyRange) (uint64, fuse.Status) {
	size := src.file.Size()
	if r.N = min(r.N, size-min(r.SrcOff, size)); r.N == 0 {
		return 0, p.delivered(src.file.Deliver(ctx, r.SrcOff, 0))
	}
	body, last := r, r
	body.N--
	last.SrcOff, last.DstOff, last.N = r.SrcOff+body.N, r.DstOff+body.N, 1
	whole := context.WithoutCancel(ctx)
	n, err := p.store.CopyRange(ctx, body)
	if err == nil && n == body.N {
		_, err = r.Dst.WriteAt(ctx, []byte{0}, objects.Write{Off: last.DstOff})
	}
	switch {
	case err != nil && n == 0:
		return 0, p.errs.status(err)
	case err != nil || n < body.N: // less than requested, reported as is
		return n, p.delivered(src.file.Deliver(whole, r.SrcOff, int(n)))
	}
	if status := p.delivered(src.file.Deliver(ctx, r.SrcOff, int(r.N))); status != fuse.OK {
		return 0, status
	}
	if _, err = p.store.CopyRange(whole, last); err != nil {
		return 0, p.errs.status(err)
	}
	return r.N, fuse.OK
}
