package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects"
)

// Lseek finds data or a hole. The kernel implements the other values of whence itself.
//
// Errors: EBADF, EINVAL, ENXIO beyond the end.
func (f *filesystem) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) (status fuse.Status) {
	defer f.ops.done(opLseek, time.Now(), &status)
	h, status := f.handleOf(in.Fh)
	if status != fuse.OK {
		return status
	}
	var whence objects.Whence
	switch in.Whence {
	case unix.SEEK_DATA:
		whence = objects.SeekData
	case unix.SEEK_HOLE:
		whence = objects.SeekHole
	default:
		return fuse.EINVAL
	}
	if h.view != nil {
		out.Offset, status = h.view.seek(in.Offset, whence)
		return status
	}
	ctx, done := h.context(cancel, in.Pid)
	defer done()
	off, err := h.open.Seek(ctx, in.Offset, whence)
	if err != nil {
		return f.errs.dataStatus(err)
	}
	out.Offset = off
	return fuse.OK
}
