package fs

import (
	"context"
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// isPublished says that an inode is a file of publish/.
func isPublished(a *objects.Attr) bool {
	return a.Parent == metadata.PublishIno && a.IsRegular()
}

// ownRefusal is the answer to a change of an inode itself: publish/ is as
// little the user's to change as what is reserved.
func (f *filesystem) ownRefusal(ino metadata.Ino) fuse.Status {
	if ino == metadata.PublishIno {
		return fuse.EPERM
	}
	return f.refusal(ino)
}

// cutRefusal is the answer to setting a file's size: what is published stays
// as it is.
func (f *filesystem) cutRefusal(ino metadata.Ino) fuse.Status {
	a, err := f.store.Attr(background(), ino)
	if err == nil && isPublished(&a) {
		return fuse.EPERM
	}
	return fuse.OK
}

// mayHaveMissed says that a file that was opened as any other may have been in
// publish/ when its name was looked up.
func (f *filesystem) mayHaveMissed(ino metadata.Ino, fh uint64) bool {
	if !f.fleeting.mayHaveLeft(ino) {
		return false
	}
	h, ok := f.files.get(fh)
	return ok && !h.published
}

// openPublished finishes the opening of a file of publish/. The kernel never
// serves it by itself, and keeps none of its pages for the next one who opens
// it, so that every byte that is read is asked for. Closing has something to
// report: the kernel sends FLUSH.
//
// Errors: EPERM for writing; EBUSY while somebody has it mapped.
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

// deliver notes that an answer is about to be given to a reader, who may have
// received the file by that. Bytes that the kernel asks for without naming who
// reads go to its pages, which are those of a map or of sendfile.
//
// Errors: EIO when another reader has received the file, or has it open beside
// pages that all who have it open would share.
func (p *published) deliver(cancel <-chan struct{}, h *fileHandle, in *fuse.ReadIn, n int) fuse.Status {
	if in.ReadFlags&fuse.READ_LOCKOWNER == 0 && !p.mapped(h.file.Ino(), in.Fh) {
		return fuse.EIO
	}
	// It may wait for another one who is about to receive the file, and fails.
	ctx, release := untilKilled(cancel, in.Pid)
	defer release()
	return p.delivered(h.file.Deliver(ctx, in.Offset, n))
}

// delivered is the status of a delivery: that the file is somebody else's now
// is an error of reading, not of its name.
func (p *published) delivered(err error) fuse.Status {
	if errors.Is(err, metadata.ErrNotExist) {
		return fuse.EIO
	}
	return p.errs.status(err)
}

// copyPublished copies from a file of publish/. Nobody who comes second may
// have all bytes in the end, and nobody may have received what it has no room
// for. So the last byte is copied when it is the caller's, and its room is
// taken before.
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
	case err != nil || n < body.N: // less than was asked for, as it came
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
