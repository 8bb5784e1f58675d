package fs

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport"
)

// viewFile is the content of an open tensor: a header, then a range of the file's bytes,
// wherever those are. Nothing is copied or cached.
type viewFile struct {
	*viewNode
	views *views
	file  *objects.File
	// good is a mark at which the file had the tensor as the node shows it.
	good atomic.Pointer[objects.Mark]
}

var _ interface {
	source
	viewer
} = (*viewFile)(nil)

// Version changes with the file's content.
func (v *viewFile) Version() uint64 { return v.file.Version() }

// Foreign reports whether the bytes are also written without the store.
func (v *viewFile) Foreign() bool { return v.file.Foreign() }

// PinSlot locks a slot for the device that the file is on.
func (v *viewFile) PinSlot(s *transport.Slot) { v.file.PinSlot(s) }

// Size returns the size of header and tensor.
func (v *viewFile) Size() uint64 { return v.size() }

// Accessed records an access of the file.
func (v *viewFile) Accessed() { v.file.Accessed() }

// Peek reads fewer than len(p) bytes only at the tensor's end.
//
// Errors: ESTALE when the file ends before the tensor does.
func (v *viewFile) Peek(ctx context.Context, p []byte, off uint64) (int, error) {
	n, at, rest := v.part(off, len(p))
	copy(p, v.header[min(off, uint64(len(v.header))):][:n])
	if rest == 0 {
		return n, nil
	}
	got, err := v.file.Peek(ctx, p[n:n+rest], at)
	if err == nil && got < rest {
		err = v.stale()
	}
	if err != nil {
		return 0, err
	}
	return n + rest, nil
}

// part divides n bytes at off into a number of bytes of the header, and a number of bytes
// of the file at an offset.
func (v *viewFile) part(off uint64, n int) (header int, at uint64, rest int) {
	if off >= v.size() {
		return 0, 0, 0
	}
	length := uint64(len(v.header))
	n = int(min(uint64(n), v.size()-off))
	if off < length {
		header = int(min(uint64(n), length-off))
	}
	return header, v.tensor.Off + off + uint64(header) - length, n - header
}

// Views exposes the bytes in place, as objects.File does.
func (v *viewFile) Views(ctx context.Context, off uint64, n int) (objects.Views, error) {
	head, at, rest := v.part(off, n)
	out := objects.Views{Release: func() {}}
	if rest > 0 {
		var err error
		if out, err = v.file.Views(ctx, at, rest); err != nil {
			return out, err
		}
		if out.Len < rest {
			out.Release()
			return objects.Views{}, v.stale()
		}
	}
	if head > 0 {
		out.Slices = append([][]byte{v.header[off:][:head]}, out.Slices...)
		out.Len += head
	}
	return out, nil
}

// verify returns a mark at which the file has the tensor as the node shows
// it; ok is false while the file is being changed.
func (v *viewFile) verify(ctx context.Context) (mark objects.Mark, ok bool, err error) {
	if mark, err = v.file.Mark(); err != nil {
		return mark, false, err
	}
	if good := v.good.Load(); good != nil && *good == mark {
		return mark, true, nil
	}
	if !v.file.Same(mark) {
		return mark, false, nil
	}
	err = v.views.check(ctx, v.viewNode)
	if !v.file.Same(mark) {
		return mark, false, nil
	}
	if err == nil && v.file.Settled(mark) {
		v.good.Store(&mark)
	}
	return mark, err == nil, err
}

// steadyTries bounds the reads that are attempted during changes of the file before waiting
// for the changes to end.
const steadyTries = 3

// readView reads a tensor, or reports that it no longer exists: the bytes come from a
// single version of the file's content, in which the tensor was as it is shown.
func (f *filesystem) readView(ctx context.Context, h *fileHandle, off uint64, buf []byte) (fuse.ReadResult, error) {
	v := h.view
	for range steadyTries {
		mark, ok, err := v.verify(ctx)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		result, err := f.readFile(ctx, h, off, buf)
		if v.file.Same(mark) {
			return result, err
		}
		if err == nil {
			result.Done()
		}
	}
	var n int
	err := v.file.Still(ctx, func() (err error) {
		if err = v.views.check(ctx, v.viewNode); err == nil {
			n, err = v.Peek(ctx, buf, off)
			v.Accessed()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return fuse.ReadResultData(buf[:n]), nil
}

// open opens a tensor for reading.
//
// Errors: EROFS, ESTALE, EIO.
func (v viewInode) open(_ *fuse.Caller, flags uint32, out *fuse.OpenOut) fuse.Status {
	if isWriting(flags) || flags&unix.O_TRUNC != 0 {
		return fuse.EROFS
	}
	f := v.fs
	n, err := f.views.checked(v.ino)
	if err != nil {
		return f.errs.status(err)
	}
	file, err := f.store.OpenFile(background(), n.file)
	if err != nil {
		return f.errs.status(err)
	}
	if file.Published() {
		file.Abandon(background())
		return errStale
	}
	shown := &viewFile{viewNode: n, views: &f.views, file: file}
	h := &fileHandle{open: file, file: file, view: shown, src: shown}
	h.ahead.init(f, shown)
	if file.Backing() != nil {
		h.ahead.window = 0
	}
	f.views.opened(shown)
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	out.Fh = f.files.put(h)
	return fuse.OK
}

// copyTo copies from a tensor to a file: the header, then the bytes from
// device to device.
//
// Errors: EOPNOTSUPP for a copy into the file that contains the tensor, on which the kernel
// reads and writes; those of readView and of CopyRange.
func (v *viewFile) copyTo(ctx context.Context, r objects.CopyRange) (uint64, error) {
	if r.Dst.Ino() == v.viewNode.file {
		return 0, fmt.Errorf("can't copy a tensor into its own file: %w", objects.ErrUnsupported)
	}
	mark, _, err := v.verify(ctx)
	if err != nil {
		return 0, err
	}
	head, at, _ := v.part(r.SrcOff, 1<<30)
	var done uint64
	if head = min(head, int(r.N)); head > 0 {
		var n int
		n, err = r.Dst.WriteAt(ctx, v.header[r.SrcOff:][:head], objects.Write{Off: r.DstOff})
		if done = uint64(n); err != nil || n < head {
			return done, err
		}
	}
	if rest := min(r.N, v.size()-min(r.SrcOff, v.size())); rest > done {
		var n uint64
		n, err = v.views.store.CopyRange(ctx, objects.CopyRange{
			Dst: r.Dst, DstOff: r.DstOff + done, Src: v.file, SrcOff: at, N: rest - done,
		})
		done += n
	}
	if !v.file.Same(mark) {
		// The copied bytes may come from several versions of the content.
		if stale := v.views.check(ctx, v.viewNode); stale != nil {
			return 0, stale
		}
	}
	return done, err
}

// seek treats all of a tensor as data.
func (v *viewFile) seek(off uint64, w objects.Whence) (uint64, fuse.Status) {
	switch {
	case off >= v.size():
		return 0, errNoData
	case w == objects.SeekHole:
		return v.size(), fuse.OK
	}
	return off, fuse.OK
}
