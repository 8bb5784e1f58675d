package fs

import (
	"context"
	"math"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// needs checks that the file is open for reading or, with writing set, for writing.
//
// Errors: EISDIR; EBADF.
func (o *Opened) needs(writing bool) error {
	access := o.flags & syscall.O_ACCMODE
	switch {
	case writing && access == syscall.O_RDONLY, !writing && access == syscall.O_WRONLY:
		return syscall.EBADF
	case o.dir != nil:
		return syscall.EISDIR
	}
	return nil
}

// ReadAt reads len(p) bytes, fewer only at the end, or of a stream.
func (o *Opened) ReadAt(ctx context.Context, p []byte, off uint64) (n int, err error) {
	if err = o.needs(false); err != nil {
		return 0, err
	}
	for n < len(p) {
		part := p[n:min(len(p), n+o.guest.fs.request)]
		got, err := o.readPart(ctx, part, off+uint64(n))
		if n += got; got < len(part) || err != nil {
			if n > 0 {
				return n, nil
			}
			return 0, err
		}
	}
	return n, nil
}

func (o *Opened) readPart(ctx context.Context, p []byte, off uint64) (int, error) {
	r := o.guest.fs.requests.get()
	defer o.guest.fs.requests.put(r)
	r.read = fuse.ReadIn{
		InHeader: o.guest.header(o.at.ino), Fh: o.fh, Offset: off, Size: uint32(len(p)),
		ReadFlags: fuse.READ_LOCKOWNER, // it is not a read for the kernel's pages
	}
	result, status := o.guest.raw.Read(ctx.Done(), &r.read, p)
	if status != fuse.OK {
		return 0, errOf(status)
	}
	if result.Size() == 0 {
		return 0, nil
	}
	defer result.Done()
	pieces, ok := result.(*sliceResult)
	if !ok {
		data, status := result.Bytes(p)
		return copy(p, data), errOf(status) // mostly they are in p already
	}
	n := 0
	for _, piece := range pieces.slices {
		n += copy(p[n:], piece)
	}
	return n, nil
}

// Had records, of a file that is in publish/, that the reader has had the bytes from one offset to another when an earlier process had the file
// open. It does nothing for other files.
//
// Errors: EIO if another reader has received the file.
func (o *Opened) Had(ctx context.Context, from, end uint64) error {
	h, ok := o.guest.fs.files.get(o.fh)
	if o.dir != nil || !ok || !h.published || end < from || end > math.MaxInt64 {
		return nil
	}
	return errOf(o.guest.fs.published.delivered(h.file.Deliver(ctx, from, int(end-from))))
}

// WriteAt writes bytes; at the end of the file if it was opened with O_APPEND. Fewer than len(p)
// without an error mean that the device is full.
func (o *Opened) WriteAt(ctx context.Context, p []byte, off uint64) (n int, err error) {
	if err = o.needs(true); err != nil {
		return 0, err
	}
	defer o.guest.touched(o.at.ino, 0)
	r := o.guest.fs.requests.get()
	defer o.guest.fs.requests.put(r)
	for n < len(p) {
		part := p[n:min(len(p), n+o.guest.fs.request)]
		r.write = o.writeOf(off+uint64(n), len(part))
		put, status := o.guest.raw.Write(ctx.Done(), &r.write, part)
		if n += int(put); status != fuse.OK || int(put) < len(part) {
			if n > 0 {
				return n, nil
			}
			return 0, errOf(status)
		}
	}
	return n, nil
}

func (o *Opened) writeOf(off uint64, n int) fuse.WriteIn {
	in := fuse.WriteIn{InHeader: o.guest.header(o.at.ino), Fh: o.fh, Offset: off, Size: uint32(n), Flags: o.flags}
	if !o.guest.IsRoot() {
		in.WriteFlags = fuse.WRITE_KILL_SUIDGID
	}
	return in
}

// BounceSize is the size, in bytes, of the memory through which bytes pass that no device can copy
// itself: those of views, of streams, and of other nodes. A read, write or copy of a guest allocates
// no more than this.
const BounceSize = 1 << 20

// direct returns the file if its bytes can be copied between it and registered memory.
func (o *Opened) direct() *objects.File {
	h, ok := o.guest.fs.files.get(o.fh)
	if !ok || h.published || h.view != nil {
		return nil
	}
	return h.file
}

// ReadTo reads into registered memory.
func (o *Opened) ReadTo(ctx context.Context, off uint64, to objects.Blob) (uint64, error) {
	if err := o.needs(false); err != nil {
		return 0, err
	}
	if file := o.direct(); file != nil {
		n, err := file.ReadBlob(ctx, off, to)
		return n, errOf(o.guest.fs.errs.dataStatus(err))
	}
	buf := make([]byte, min(to.Len, BounceSize))
	for done := uint64(0); done < to.Len; {
		n, err := o.ReadAt(ctx, buf[:min(uint64(len(buf)), to.Len-done)], off+done)
		if err == nil && n > 0 {
			err = o.guest.denied(to.Put(ctx, done, buf[:n]))
		}
		if err != nil || n == 0 {
			return done, err
		}
		done += uint64(n)
	}
	return to.Len, nil
}

// WriteFrom writes from registered memory.
func (o *Opened) WriteFrom(ctx context.Context, off uint64, from objects.Blob) (n uint64, err error) {
	if err = o.needs(true); err != nil {
		return 0, err
	}
	file := o.direct()
	if file == nil {
		return o.writeBounced(ctx, off, from)
	}
	f := o.guest.fs
	defer o.guest.touched(o.at.ino, 0)
	defer f.changed(file.Ino())
	write := func() (err error) {
		w := objects.Write{Off: off, Append: o.flags&unix.O_APPEND != 0, KillPriv: !o.guest.IsRoot()}
		n, err = file.WriteBlob(ctx, w, from)
		return err
	}
	if m := f.mappable.of(metadata.Ino(o.at.ino)); m != nil {
		at, size := off, from.Len
		if end := file.Size(); o.flags&unix.O_APPEND != 0 {
			at, size = min(off, end), size+max(off, end)-min(off, end)
		}
		err = m.before(ctx, f.kernel, at, size, write)
	} else {
		err = write()
	}
	if n > 0 {
		err = nil // the rest is missing, as after write(2)
	}
	return n, errOf(f.errs.dataStatus(err))
}

func (o *Opened) writeBounced(ctx context.Context, off uint64, from objects.Blob) (uint64, error) {
	buf := make([]byte, min(from.Len, BounceSize))
	for done := uint64(0); done < from.Len; {
		part := buf[:min(uint64(len(buf)), from.Len-done)]
		err := o.guest.denied(from.Get(ctx, done, part))
		n := 0
		if err == nil {
			n, err = o.WriteAt(ctx, part, off+done)
		}
		done += uint64(n)
		if err != nil || n < len(part) {
			return done, err
		}
	}
	return from.Len, nil
}

// Copy makes the bytes of a file those of another one, which is created with the same permissions
// if it does not exist. It returns the number of bytes that were copied, also with an error.
//
// Errors: EISDIR; EINVAL if both are one file.
func (g *Guest) Copy(ctx context.Context, from, to string, umask uint32) (n uint64, err error) {
	src, err := g.Open(ctx, from, syscall.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	if src.dir != nil {
		return 0, syscall.EISDIR
	}
	dst, err := g.Open(ctx, to, syscall.O_WRONLY|syscall.O_CREAT, src.at.attr.Mode&0o777&^umask)
	if err != nil {
		return 0, err
	}
	defer dst.Close()
	if dst.at.ino == src.at.ino {
		return 0, syscall.EINVAL
	}
	// Also an empty file: it may have grown since, and its set-id bits go with what it had.
	if err = dst.Truncate(ctx, 0); err != nil {
		return 0, err
	}
	defer g.touched(dst.at.ino, 0)
	return dst.copyAll(ctx, src)
}

// copyAll copies a whole file, as copy_file_range(2) does as long as that is possible.
func (o *Opened) copyAll(ctx context.Context, src *Opened) (n uint64, err error) {
	g := o.guest
	for {
		if ctx.Err() != nil {
			return n, syscall.EINTR
		}
		in := fuse.CopyFileRangeIn{
			InHeader: g.header(src.at.ino), FhIn: src.fh, OffIn: n, NodeIdOut: o.at.ino, FhOut: o.fh, OffOut: n, Len: maxCopy,
		}
		done, status := g.raw.CopyFileRange(ctx.Done(), &in)
		switch {
		case status == errNotSupported || status == fuse.Status(syscall.EXDEV):
			return o.copyRest(ctx, src, n)
		case status != fuse.OK:
			return n, errOf(status)
		case done == 0:
			return n, nil
		}
		n += uint64(done)
	}
}

// copyRest reads and writes.
func (o *Opened) copyRest(ctx context.Context, src *Opened, n uint64) (uint64, error) {
	buf := make([]byte, BounceSize)
	for {
		if ctx.Err() != nil {
			return n, syscall.EINTR
		}
		got, err := src.ReadAt(ctx, buf, n)
		if err != nil || got == 0 {
			return n, err
		}
		for part := buf[:got]; len(part) > 0; {
			put, err := o.WriteAt(ctx, part, n)
			if err == nil && put == 0 {
				err = syscall.ENOSPC
			}
			if err != nil {
				return n, err
			}
			n, part = n+uint64(put), part[put:]
		}
	}
}
