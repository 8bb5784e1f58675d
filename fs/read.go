package fs

import (
	"context"
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// Read reads in the cheapest way that the device supports: its memory in place; else bytes
// that were read ahead; else a copy to pinned or plain memory.
//
// It is not interruptible: a request is short, and few programs expect EINTR, or a short
// count in the middle of a file. A read of .hmcfs/events is, since it waits.
//
// Errors: EBADF, EIO; EINTR.
func (f *filesystem) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (result fuse.ReadResult, status fuse.Status) {
	h, ok := f.files.get(in.Fh)
	n := min(int(in.Size), len(buf))
	if ok && h.stream != nil && n > 0 {
		return f.readStream(cancel, in, h, buf[:n])
	}
	defer f.ops.done(opRead, time.Now(), &status)
	if !ok {
		return nil, fuse.EBADF
	}
	switch {
	case n == 0:
		return nothing(), fuse.OK
	case h.open == nil:
		result = readContent(h.content, in.Offset, n)
	default:
		ctx, done := h.context(cancel, in.Pid)
		defer done()
		var err error
		if result, err = f.readOpen(ctx, h, in, buf[:n]); err != nil {
			return nil, f.errs.dataStatus(err)
		}
	}
	if h.published && (result.Size() > 0 || h.file.Size() == 0) {
		if status = f.published.deliver(cancel, h, in, result.Size()); status != fuse.OK {
			result.Done()
			return nil, status
		}
	}
	f.ops.moved(opRead, &in.Caller, result.Size())
	return result, fuse.OK
}

// readStream reads from .hmcfs/events, and waits for an event.
func (f *filesystem) readStream(cancel <-chan struct{}, in *fuse.ReadIn, h *fileHandle, buf []byte) (_ fuse.ReadResult, status fuse.Status) {
	start := time.Now()
	defer func() { f.ops.waited(opRead, start, &status) }()
	n, err := h.stream.read(requestContext(cancel), buf)
	if err != nil {
		return nil, f.errs.status(err)
	}
	f.ops.moved(opRead, &in.Caller, n)
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// readOpen reads from a file of the tree, or from a view.
func (f *filesystem) readOpen(ctx context.Context, h *fileHandle, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, error) {
	if h.view != nil {
		return f.readView(ctx, h, in.Offset, buf)
	}
	f.shared.notePages(h, in)
	if m := f.pagesFor(in); m != nil {
		return m.read(ctx, h, in.Offset, buf)
	}
	return f.readFile(ctx, h, in.Offset, buf)
}

// pagesFor returns the file if the kernel reads it for its pages and a program can store to
// those.
func (f *filesystem) pagesFor(in *fuse.ReadIn) *mapped {
	if in.ReadFlags&fuse.READ_LOCKOWNER != 0 {
		return nil
	}
	return f.mappable.of(metadata.Ino(in.NodeId))
}

func readContent(content []byte, off uint64, n int) fuse.ReadResult {
	if off >= uint64(len(content)) {
		return nothing()
	}
	content = content[off:]
	return fuse.ReadResultData(content[:min(n, len(content))])
}

// readFile reads len(buf) bytes; buf is the request's own memory, which it may use.
func (f *filesystem) readFile(ctx context.Context, h *fileHandle, off uint64, buf []byte) (fuse.ReadResult, error) {
	src, ok := h.src.(viewer)
	if !ok || h.unmappable.Load() {
		return h.ahead.read(ctx, off, buf)
	}
	views, err := src.Views(ctx, off, len(buf))
	switch {
	case err == nil && len(views.Slices) <= maxSlices:
		if f.opts.Keeper != nil {
			populate(views.Slices)
		}
		return (&sliceResult{slices: views.Slices, n: views.Len, views: views.Release}).finish(), nil
	case err == nil:
		views.Release()
	case !errors.Is(err, devices.ErrUnsupported):
		return nil, err
	default:
		h.unmappable.Store(true)
	}
	return h.ahead.read(ctx, off, buf)
}
