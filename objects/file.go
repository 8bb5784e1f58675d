package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

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
	// byKernel says that the kernel may have written the content by itself.
	byKernel atomic.Bool
}

// OpenFile opens a regular file's content, which the caller is entitled to.
func (s *Store) OpenFile(ctx context.Context, ino Ino) (*File, error) {
	return s.OpenAs(ctx, ino, Caller{})
}

// OpenAs is OpenFile for a user, whose right to receive a file of publish/ it
// checks, and no other.
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

// Close ends the handle and writes the object's record if it changed. A file of
// publish/ that was received by it goes.
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

// Abandon ends a handle that was given to nobody: unlike Close it receives
// nothing, not even an empty file of publish/.
func (f *File) Abandon(ctx context.Context) {
	f.store.table.unpin(context.WithoutCancel(ctx), f.obj, pinOpen)
}

// Ino returns the object's number.
func (f *File) Ino() Ino { return f.obj.ino }

// Version changes before and after every change of the content: bytes read
// between two equal versions are the content at the second.
func (f *File) Version() uint64 { return f.obj.version.Load() }

// Foreign says that another process can change the bytes without the store:
// what was read before is not what is there now, whatever Version says.
func (f *File) Foreign() bool { return f.obj.foreign.Load() }

// Size returns the present size in bytes.
func (f *File) Size() uint64 {
	n, err := f.obj.end()
	if err != nil {
		return 0
	}
	return n
}

// Device is the device whose memory the content is in; nil where that is a file
// of the host tier, or memory of another process.
func (f *File) Device() devices.Device {
	t, body := f.obj.place()
	if t.Files != nil || isBound(body) {
		return nil
	}
	return t.Dev
}

// PinSlot locks a slot for the device that the content is on, so that reads
// into it run at full speed. The caller holds the slot.
func (f *File) PinSlot(s *transport.Slot) {
	if t, _ := f.obj.place(); t.Files == nil {
		s.Pin(t.Dev)
	}
}

// Backing returns the host-tier file that holds the content, for the kernel
// to serve by itself; ok is false for objects in device memory. The file
// stays the object's.
func (f *File) Backing() (backing *os.File, ok bool) {
	backing = f.obj.content().Backing()
	return backing, backing != nil
}

// ByDaemon says that the daemon serves the file although it has a backing: a
// map may be left of the time before the object was lost, and the kernel does
// not serve one inode in two ways. It is over when the last handle has gone.
func (f *File) ByDaemon() bool { return f.obj.revived.Load() }

// KernelWrites notes that the kernel is about to write the content by itself,
// so that the object does not go on telling an older path.
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

// ReadAt copies bytes out. It reads fewer than len(p) only at the end.
//
// A host file can be cut between the look at its size and the read, also by
// the kernel. Then the read is short, as if it had come later.
func (f *File) ReadAt(ctx context.Context, p []byte, off uint64) (int, error) {
	n, err := f.Peek(ctx, p, off)
	if n > 0 {
		f.Accessed()
	}
	return n, err
}

// Accessed notes that what Peek has read was asked for.
func (f *File) Accessed() { f.obj.accessed() }

// Peek is ReadAt without noting the access.
func (f *File) Peek(ctx context.Context, p []byte, off uint64) (int, error) {
	n, err := f.readAt(ctx, p, off)
	// Our own file was cut meanwhile, so the object has another end now. That
	// of another process has not: its owner has broken it.
	for errors.Is(err, io.ErrUnexpectedEOF) && f.obj.content().Backing() != nil {
		n, err = f.readAt(ctx, p, off)
	}
	return n, err
}

func (f *File) readAt(ctx context.Context, p []byte, off uint64) (int, error) {
	seen, err := f.obj.look(off, uint64(len(p)), false)
	if err != nil {
		return 0, err
	}
	defer seen.Release()
	for _, at := range seen.Pieces {
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

// Views shows n bytes in place where the device's memory can be mapped; else
// the error is devices.ErrUnsupported.
func (f *File) Views(ctx context.Context, off uint64, n int) (Views, error) {
	if f.obj.content().Backing() != nil {
		return Views{}, fmt.Errorf("map a file of host memory: %w", devices.ErrUnsupported)
	}
	seen, err := f.obj.look(off, uint64(max(n, 0)), false)
	if err != nil || seen.N == 0 {
		return Views{Release: func() {}}, err
	}
	v, err := f.store.views(ctx, seen.Pieces)
	if err != nil {
		seen.Release()
		return Views{}, err
	}
	f.obj.accessed()
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
			return Views{}, fmt.Errorf("map a file of another process: %w", devices.ErrUnsupported)
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

// WriteAt copies bytes in and returns how many. Fewer than len(p) without an
// error means that the device is full, or the context ended, after those.
func (f *File) WriteAt(ctx context.Context, p []byte, w Write) (int, error) {
	m, err := f.CopyIn(ctx, transport.HostSpan(p), w)
	return int(m.N), err
}

// put writes a span at off. attrs, where it is not nil, clears set-id bits first.
// The caller has the lane.
func (o *object) put(ctx context.Context, off uint64, src transport.Span, attrs *attributes) (uint64, transport.Path, error) {
	if off > maxSize || uint64(src.Len()) > maxSize-off {
		return 0, "", fmt.Errorf("%d bytes at %d: %w", src.Len(), off, ErrTooLarge)
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

// stopped says whether an error means that no more could be moved, while all
// that was moved is good.
func stopped(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, devices.ErrOutOfMemory)
}

// Allocate is fallocate(2).
func (f *File) Allocate(ctx context.Context, mode AllocateMode, off, n uint64) error {
	if n == 0 || off > maxSize || n > maxSize-off {
		return fmt.Errorf("allocate %d bytes at %d: %w", n, off, ErrTooLarge)
	}
	o := f.obj
	err := o.change(ctx, func() error {
		if mode != AllocatePunch { // a hole is no content that could be lost
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
		// Memory first: without it nothing is to be destroyed.
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

// Seek finds data or a hole at or behind off; ErrNoData beyond the end.
func (f *File) Seek(ctx context.Context, off uint64, w Whence) (uint64, error) {
	if h, ok := f.obj.content().(*content.HostFile); ok {
		return h.Next(off, w == SeekHole)
	}
	seen, err := f.obj.look(off, maxSize, true)
	if err != nil {
		return 0, err
	}
	seen.Release()
	if seen.N == 0 {
		return 0, fmt.Errorf("seek to %d, behind the end: %w", off, ErrNoData)
	}
	for _, at := range seen.Pieces {
		if at.Hole == (w == SeekHole) {
			return at.Off, nil
		}
	}
	if w == SeekHole {
		return off + seen.N, nil
	}
	return 0, fmt.Errorf("seek to data behind %d: %w", off, ErrNoData)
}

// Sync writes the object's record.
func (f *File) Sync(ctx context.Context) error { return f.obj.save(ctx) }
