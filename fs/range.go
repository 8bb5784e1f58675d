package fs

import (
	"context"
	"fmt"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// maxCopy is the most bytes that one CopyFileRange moves. The caller asks
// again for the rest; between two calls it can be interrupted, and go-fuse's
// answer has only 32 bits.
const maxCopy = 1 << 30

// CopyFileRange copies between two files, from device to device.
//
// Errors: EBADF, EINVAL for flags, ENOSPC, EIO; EINTR when nothing was
// copied; EOPNOTSUPP for a file of .hmcfs/, which the kernel then reads and
// writes.
func (f *filesystem) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (written uint32, status fuse.Status) {
	defer f.ops.done(opCopyFileRange, time.Now(), &status)
	if in.Flags != 0 {
		return 0, fuse.EINVAL
	}
	src, status := f.handleOf(in.FhIn)
	if status != fuse.OK {
		return 0, status
	}
	dst, status := f.fileOf(in.FhOut)
	if status != fuse.OK {
		return 0, status
	}
	m := f.mappable.of(metadata.Ino(in.NodeIdOut))
	if m == nil || in.Len == 0 {
		return f.copyRange(cancel, dst, src, in)
	}
	if status = f.copyBeside(m, dst, in); status != fuse.OK {
		return 0, status
	}
	err := m.before(requestContext(cancel), f.kernel, in.OffOut, in.Len, func() error {
		written, status = f.copyRange(cancel, dst, src, in)
		return nil
	})
	if err != nil {
		return 0, f.errs.dataStatus(err)
	}
	return written, status
}

// maxCopyBeside is maxCopy for a file of which the kernel has pages: while bytes
// are copied none are read for maps.
const maxCopyBeside = 16 << 20

// copyBeside cuts a copy into a file that can be stored to through maps. The
// kernel drops the pages that the copy begins and ends in afterwards, without
// writing back what was stored beside it meanwhile. So those are not copied in
// part.
//
// Errors: EXDEV for less than a page, or from within one, which the kernel
// then reads and writes.
func (f *filesystem) copyBeside(m *mapped, dst *fileHandle, in *fuse.CopyFileRangeIn) fuse.Status {
	in.Len = min(in.Len, maxCopy)
	if m.hasPages() {
		in.Len = min(in.Len, maxCopyBeside)
	}
	if end := in.OffOut + in.Len; end%page != 0 && end < dst.src.Size() {
		in.Len -= min(in.Len, end%page)
	}
	if in.OffOut%page != 0 || in.Len == 0 {
		return fuse.EXDEV
	}
	return fuse.OK
}

// copyRange is CopyFileRange between files that are open.
func (f *filesystem) copyRange(cancel <-chan struct{}, dst, src *fileHandle, in *fuse.CopyFileRangeIn) (written uint32, status fuse.Status) {
	if src.isOther() || dst.isOther() {
		n, err := f.copyBetween(requestContext(cancel), dst, src, in)
		if err != nil && n == 0 {
			return 0, f.errs.dataStatus(err)
		}
		f.ops.moved(opCopyFileRange, int(n))
		return uint32(n), fuse.OK
	}
	r := objects.CopyRange{
		Dst: dst.file, DstOff: in.OffOut,
		Src: src.file, SrcOff: in.OffIn,
		N: min(in.Len, maxCopy),
	}
	defer f.changed(dst.file.Ino())
	if src.published {
		n, status := f.published.copyPublished(requestContext(cancel), src, r)
		f.ops.moved(opCopyFileRange, int(n))
		return uint32(n), status
	}
	var n uint64
	var err error
	if src.view != nil {
		n, err = src.view.copyTo(requestContext(cancel), r)
	} else {
		n, err = f.store.CopyRange(requestContext(cancel), r)
	}
	if err != nil && n == 0 {
		return 0, f.errs.status(err)
	}
	f.ops.moved(opCopyFileRange, int(n))
	return uint32(n), fuse.OK
}

// copyBetween copies between two files of which one at least is another node's.
//
// Errors: EOPNOTSUPP where the other one has a content that is made while it is read, or
// that is received by reading it; the kernel then reads and writes.
func (f *filesystem) copyBetween(ctx context.Context, dst, src *fileHandle, in *fuse.CopyFileRangeIn) (uint64, error) {
	if src.view != nil || src.published || dst.published {
		return 0, fmt.Errorf("copy what is no plain file: %w", objects.ErrUnsupported)
	}
	to, from := cluster.FileRange{File: dst.open, Off: in.OffOut}, cluster.FileRange{File: src.open, Off: in.OffIn}
	n, err := f.tree.Copy(ctx, to, from, min(in.Len, maxCopy))
	if n > 0 {
		f.changed(dst.open.Ino())
	}
	return n, err
}

// Fallocate takes, frees or zeroes a range.
//
// Errors: EBADF, ENOSPC, EFBIG, EOPNOTSUPP for modes that are not known.
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

// allocateMode converts the mode of fallocate(2).
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

// Lseek finds data or a hole. The kernel does the other ways of seeking by
// itself.
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
