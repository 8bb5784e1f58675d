package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// File is an open object. Its methods may be called from any goroutine.
type File struct {
	store *Store
	obj   *object
	// reading is nil for a file that was not in publish/ when it was opened.
	reading *reading
	// byKernel reports that the kernel may have written the content by passthrough.
	byKernel atomic.Bool
}

// OpenFile opens a regular file's content. The caller has checked permissions.
func (s *Store) OpenFile(ctx context.Context, ino Ino) (*File, error) {
	return s.OpenAs(ctx, ino, Caller{})
}

// OpenAs is OpenFile for a user. It checks whether the user may receive a file of
// publish/, and no other permission.
//
// Errors: ErrForbidden.
func (s *Store) OpenAs(ctx context.Context, ino Ino, who Caller) (*File, error) {
	o, err := s.table.pin(ctx, ino, pinOpen)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if t, _ := o.place(); t.Files != nil {
		t.MakeRoom(0)
	}
	r, err := o.begin()
	if err == nil && r != nil && who.UID != 0 {
		var in Attr
		if in, err = s.attrs.get(ctx, ino); err == nil {
			err = mayReceive(who, in.Inode)
		}
	}
	if err != nil {
		s.table.unpin(ctx, o, pinOpen)
		return nil, fmt.Errorf("open: %w", err)
	}
	return &File{store: s, obj: o, reading: r}, nil
}

// Close ends the handle and writes the object's record if it has changed. It removes
// the name of a file of publish/ that was received through the handle.
func (f *File) Close(ctx context.Context) error {
	if f.reading != nil {
		f.finish(ctx)
	}
	f.store.table.unpin(ctx, f.obj, pinOpen)
	if f.byKernel.Load() {
		f.store.notices.send(Notice{Ino: f.obj.ino})
	}
	return nil
}

// Abandon ends a handle that was not passed to a user: unlike Close it receives
// nothing, not even an empty file of publish/.
func (f *File) Abandon(ctx context.Context) {
	f.store.table.unpin(context.WithoutCancel(ctx), f.obj, pinOpen)
}

// Ino returns the object's number.
func (f *File) Ino() Ino { return f.obj.ino }

// Version changes before and after every change of the content: bytes read
// between two equal versions are the content at the second.
func (f *File) Version() uint64 { return f.obj.version.Load() }

// Foreign reports whether another process can change the bytes without the store: data
// read earlier may be stale, even if Version is unchanged.
func (f *File) Foreign() bool { return f.obj.foreign.Load() }

// Size returns the present size in bytes.
func (f *File) Size() uint64 {
	n, err := f.obj.end()
	if err != nil {
		return 0
	}
	return n
}

// Device returns the device whose memory holds the content; nil for a file of the host
// tier, and for memory of another process.
func (f *File) Device() devices.Device {
	t, body := f.obj.place()
	if t.Files != nil || isBound(body) {
		return nil
	}
	return t.Dev
}

// PinSlot pins a slot for the device that holds the content, so that reads into the
// slot run at full speed. The caller holds the slot.
func (f *File) PinSlot(s *transport.Slot) {
	if t, _ := f.obj.place(); t.Files == nil {
		s.Pin(t.Dev)
	}
}

// Backing returns the host-tier file that holds the content, for passthrough; nil for
// objects in device memory. The object keeps ownership of the file.
func (f *File) Backing() *os.File { return f.obj.content().Backing() }

// ByDaemon reports that the daemon must serve the file although it has a backing: a
// mapping may remain from before the object was lost, or from publish/, and the kernel can't
// serve one inode in two ways. This ends when the last handle is closed.
func (f *File) ByDaemon() bool { return f.obj.revived.Load() }

// KernelWrites records that the kernel is about to write the content by passthrough, so
// that the object no longer reports an older path.
func (f *File) KernelWrites() {
	f.byKernel.Store(true)
	o := f.obj
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.path != "" && o.path != transport.PathPassthrough {
		o.path = transport.PathPassthrough
		o.dirty.Store(true)
	}
}

// ReadAt reads bytes. It reads fewer than len(p) only at the end.
//
// A host file can be truncated between the check of its size and the read, also by the
// kernel. Then the read is short, as if it had come later.
func (f *File) ReadAt(ctx context.Context, p []byte, off uint64) (int, error) {
	n, err := f.Peek(ctx, p, off)
	if n > 0 {
		f.Accessed()
	}
	return n, err
}

// Accessed records an access for data that Peek has read.
func (f *File) Accessed() { f.obj.accessed(time.Now()) }

// Peek is ReadAt without recording the access.
func (f *File) Peek(ctx context.Context, p []byte, off uint64) (int, error) {
	n, err := f.readAt(ctx, p, off)
	// A file of the host tier was truncated meanwhile, so the object has another end now. A
	// bound file keeps its length: its owner has truncated it, which is an error.
	for errors.Is(err, io.ErrUnexpectedEOF) && f.obj.content().Backing() != nil {
		n, err = f.readAt(ctx, p, off)
	}
	return n, err
}

func (f *File) readAt(ctx context.Context, p []byte, off uint64) (int, error) {
	seen, err := f.obj.look(ctx, off, uint64(len(p)), false)
	if err != nil {
		return 0, err
	}
	defer seen.Release()
	for i := range seen.Len() {
		at := seen.At(i)
		part := p[at.Off-off : at.Off-off+at.N]
		if at.Hole {
			clear(part)
			continue
		}
		if _, err := f.obj.table.engine.Copy(ctx, transport.HostSpan(part), at.Span); err != nil {
			return 0, fmt.Errorf("read object %d: %w", f.obj.ino, err)
		}
	}
	return int(seen.N), nil
}

// Views returns n bytes in place, if the device's memory can be mapped; otherwise the
// error is devices.ErrUnsupported.
func (f *File) Views(ctx context.Context, off uint64, n int) (Views, error) {
	if f.obj.content().Backing() != nil {
		return Views{}, fmt.Errorf("can't map a file of host memory: %w", devices.ErrUnsupported)
	}
	seen, err := f.obj.look(ctx, off, uint64(max(n, 0)), false)
	if err != nil || seen.N == 0 {
		return Views{Release: func() {}}, err
	}
	v, err := f.store.views(ctx, seen.Pieces())
	if err != nil {
		seen.Release()
		return Views{}, err
	}
	f.obj.accessed(time.Now())
	unmap := v.Release
	v.Release = func() { unmap(); seen.Release() }
	return v, nil
}

// views maps pieces one by one.
func (s *Store) views(ctx context.Context, pieces []content.Piece) (Views, error) {
	var v Views
	var held []devices.View
	v.Release = func() {
		for _, h := range held {
			h.Release()
		}
	}
	for _, at := range pieces {
		v.Len += int(at.N)
		if at.Hole {
			v.Slices = appendZeros(v.Slices, s.table.hole, at.N)
			continue
		}
		if at.Dev.Mem == nil {
			v.Release()
			return Views{}, fmt.Errorf("can't map memory of another process: %w", devices.ErrUnsupported)
		}
		view, err := s.engine.View(ctx, at.Dev)
		if err != nil {
			v.Release()
			return Views{}, err
		}
		held = append(held, view)
		v.Slices = append(v.Slices, view.Bytes)
	}
	return v, nil
}

func appendZeros(slices [][]byte, hole []byte, n uint64) [][]byte {
	for n > 0 {
		k := min(n, uint64(len(hole)))
		slices = append(slices, hole[:k])
		n -= k
	}
	return slices
}

// WriteAt writes bytes and returns how many. Fewer than len(p) without an error mean
// that the device was full, or the context ended, after those.
func (f *File) WriteAt(ctx context.Context, p []byte, w Write) (int, error) {
	m, err := f.CopyIn(ctx, transport.HostSpan(p), w)
	return int(m.N), err
}

// put writes a span at off. If attrs is not nil, it clears the set-id bits first. The
// caller has the lane.
func (o *object) put(ctx context.Context, off uint64, src transport.Span, attrs *attributes) (uint64, transport.Path, error) {
	if off > maxSize || uint64(src.Len()) > maxSize-off {
		return 0, "", fmt.Errorf("%d bytes at offset %d: %w", src.Len(), off, ErrTooLarge)
	}
	if src.Len() == 0 {
		return 0, "", nil
	}
	if err := o.notOffered(); err != nil {
		return 0, "", err
	}
	if attrs != nil {
		if err := attrs.killPriv(ctx, o.ino); err != nil {
			return 0, "", err
		}
	}
	if err := o.mark(ctx, off+uint64(src.Len())); err != nil {
		return 0, "", err
	}
	n, path, err := o.content().Write(ctx, off, src)
	if n > 0 {
		o.touch(off+n, path)
	}
	return n, path, err
}

// stopped reports whether an error means that no more could be copied, while everything
// copied so far is valid.
func stopped(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, devices.ErrOutOfMemory)
}

// Allocate implements fallocate(2).
func (f *File) Allocate(ctx context.Context, mode AllocateMode, off, n uint64) error {
	if n == 0 || off > maxSize || n > maxSize-off {
		return fmt.Errorf("allocate %d bytes at offset %d: %w", n, off, ErrTooLarge)
	}
	o := f.obj
	err := o.change(ctx, func() error {
		if mode != AllocatePunch { // a hole has no content that could be lost
			if err := o.mark(ctx, 0); err != nil {
				return err
			}
		}
		return o.allocate(ctx, mode, off, n)
	})
	if err != nil {
		return fmt.Errorf("allocate in object %d: %w", o.ino, err)
	}
	return nil
}

func (o *object) allocate(ctx context.Context, mode AllocateMode, off, n uint64) error {
	if err := o.notOffered(); err != nil {
		return err
	}
	body := o.content()
	var err error
	switch mode {
	case AllocateExtend, AllocateKeepSize:
		err = body.Reserve(ctx, off, n)
	case AllocatePunch:
		if err = o.mayPunch(off); err == nil {
			err = body.Clear(ctx, off, n, false)
		}
	case AllocateZero, AllocateZeroKeepSize:
		// Memory first: without it, no content may be destroyed.
		if err = body.Reserve(ctx, off, n); err == nil {
			err = body.Clear(ctx, off, n, true)
		}
	default:
		err = ErrInvalid
	}
	if err != nil {
		return err
	}
	end := uint64(0)
	if mode == AllocateExtend || mode == AllocateZero {
		end = off + n
	}
	return o.extend(ctx, end)
}

// extend makes the object at least end bytes long.
func (o *object) extend(ctx context.Context, end uint64) error {
	body := o.content()
	if body.Backing() == nil {
		o.touch(end, "")
		return nil
	}
	size, err := o.end()
	if err != nil || size >= end {
		return err
	}
	return body.Cut(ctx, end)
}

// Seek finds data or a hole at or after off; ErrNoData beyond the end.
func (f *File) Seek(ctx context.Context, off uint64, w Whence) (uint64, error) {
	if h, ok := f.obj.content().(*content.HostFile); ok {
		return h.Next(off, w == SeekHole)
	}
	seen, err := f.obj.look(ctx, off, maxSize, true)
	if err != nil {
		return 0, err
	}
	seen.Release()
	if seen.N == 0 {
		return 0, fmt.Errorf("seek to %d, beyond the end: %w", off, ErrNoData)
	}
	for i := range seen.Len() {
		at := seen.At(i)
		if at.Hole == (w == SeekHole) {
			return at.Off, nil
		}
	}
	if w == SeekHole {
		return off + seen.N, nil
	}
	return 0, fmt.Errorf("seek to data at or after %d: %w", off, ErrNoData)
}

// Sync writes the object's record.
func (f *File) Sync(ctx context.Context) error { return f.obj.save(ctx) }
