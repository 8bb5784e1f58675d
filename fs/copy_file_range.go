package fs

import (
	"context"
	"fmt"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// maxCopy is the most bytes that one CopyFileRange moves. The caller asks again for the
// rest; it can be interrupted between two calls, and go-fuse's answer has only 32 bits.
const maxCopy = 1 << 30

// CopyFileRange copies between two files, from device to device.
//
// Errors: EBADF, EINVAL for flags, ENOSPC, EIO; EINTR when nothing was copied; EOPNOTSUPP
// for a file of .hmcfs/, on which the kernel falls back to reading and writing.
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

// maxCopyBeside is maxCopy for a file that the kernel has pages of: pages cannot be read
// for maps during the copy.
const maxCopyBeside = 16 << 20

// copyBeside trims a copy into a file that can be stored to through maps. After the copy
// the kernel drops the first and the last page of the range, without writing back what was
// meanwhile stored to them outside the range. So no page is copied in part.
//
// Errors: EXDEV for less than a page, or a start within one; the kernel then reads and
// writes.
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

// copyRange is CopyFileRange between open files.
func (f *filesystem) copyRange(cancel <-chan struct{}, dst, src *fileHandle, in *fuse.CopyFileRangeIn) (written uint32, status fuse.Status) {
	r := objects.CopyRange{
		Dst: dst.file, DstOff: in.OffOut,
		Src: src.file, SrcOff: in.OffIn,
		N: min(in.Len, maxCopy),
	}
	defer f.changed(dst.open.Ino())
	var n uint64
	var err error
	switch ctx := requestContext(cancel); {
	case src.isOther() || dst.isOther():
		n, err = f.copyBetween(ctx, dst, src, in)
	case src.published:
		n, status = f.published.copyPublished(ctx, src, r)
	case src.view != nil:
		n, err = src.view.copyTo(ctx, r)
	default:
		n, err = f.store.CopyRange(ctx, r)
	}
	if err != nil && n == 0 {
		return 0, f.errs.dataStatus(err)
	}
	f.ops.moved(opCopyFileRange, &in.Caller, int(n))
	return uint32(n), status
}

// copyBetween copies between two files, at least one of which belongs to another node.
//
// Errors: EOPNOTSUPP where the other file's content is generated on reading, or is received
// by reading it; the kernel then reads and writes.
func (f *filesystem) copyBetween(ctx context.Context, dst, src *fileHandle, in *fuse.CopyFileRangeIn) (uint64, error) {
	if src.view != nil || src.published || dst.published {
		return 0, fmt.Errorf("copy_file_range: not a plain file: %w", objects.ErrUnsupported)
	}
	to, from := cluster.FileRange{File: dst.open, Off: in.OffOut}, cluster.FileRange{File: src.open, Off: in.OffIn}
	return f.tree.Copy(ctx, to, from, min(in.Len, maxCopy))
}
