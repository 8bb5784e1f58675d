package fs

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// Fallocate allocates, frees or zeroes a range.
//
// Errors: EBADF, ENOSPC, EFBIG, EOPNOTSUPP for unknown modes.
func (f *filesystem) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) (status fuse.Status) {
	defer f.ops.done(opFallocate, time.Now(), &status)
	h, status := f.fileOf(in.Fh)
	if status != fuse.OK {
		return status
	}
	mode, ok := allocateMode(in.Mode)
	if !ok {
		return errNotSupported
	}
	var ctx context.Context = requestContext(cancel)
	if h.isOther() {
		var done func()
		ctx, done = h.context(cancel, in.Pid)
		defer done()
	}
	defer f.changed(h.open.Ino())
	allocate := func() error { return h.open.Allocate(ctx, mode, in.Offset, in.Length) }
	m := f.mappable.of(metadata.Ino(in.NodeId))
	if m == nil || mode == objects.AllocateExtend || mode == objects.AllocateKeepSize {
		return f.errs.dataStatus(allocate())
	}
	return f.errs.dataStatus(m.before(ctx, f.kernel, in.Offset, in.Length, allocate))
}

func allocateMode(mode uint32) (objects.AllocateMode, bool) {
	switch mode {
	case 0:
		return objects.AllocateExtend, true
	case unix.FALLOC_FL_KEEP_SIZE:
		return objects.AllocateKeepSize, true
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE:
		return objects.AllocatePunch, true
	case unix.FALLOC_FL_ZERO_RANGE:
		return objects.AllocateZero, true
	case unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE:
		return objects.AllocateZeroKeepSize, true
	}
	return 0, false
}
