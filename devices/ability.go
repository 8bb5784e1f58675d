package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Access is the kind of access that a view of device memory is used for.
type Access int

// A view is either read-only, or can be written too.
const (
	ReadOnly Access = iota
	ReadWrite
)

// View is device memory in the host's address space.
type View struct {
	// Bytes is the memory itself. It must not be touched after Release.
	Bytes []byte
	// Release ends the view; it must be called exactly once. Bytes written through a
	// ReadWrite view are on the device when it returns.
	Release func()
}

// HostMapper is the ability to map device memory into the host's address space without a
// copy. Several views of one memory may be held at the same time, and while a view is held
// the device's copies from and to other parts of the memory continue.
type HostMapper interface {
	// MapHost returns the bytes of the span. It fails with ErrUnsupported
	// for a memory that can't be mapped.
	MapHost(ctx context.Context, s Span, access Access) (View, error)
}

// MapHost maps the span for the host if its device supports it. Otherwise the error is
// ErrUnsupported, and the caller has to copy.
func MapHost(ctx context.Context, s Span, access Access) (View, error) {
	m, ok := s.Mem.Device().(HostMapper)
	if !ok {
		return View{}, fmt.Errorf("map memory of %s: %w", s.Mem.name, ErrUnsupported)
	}
	return m.MapHost(ctx, s, access)
}

// TryMapHost is MapHost for callers with another way: ok is false, without an error, for
// memory that can't be mapped.
func TryMapHost(ctx context.Context, s Span, access Access) (view View, ok bool, err error) {
	m, can := s.Mem.Device().(HostMapper)
	if !can {
		return View{}, false, nil
	}
	view, err = m.MapHost(ctx, s, access)
	if errors.Is(err, ErrUnsupported) {
		return View{}, false, nil
	}
	return view, err == nil, err
}

// PeerCopier is the ability to copy directly between two devices.
type PeerCopier interface {
	// CopyPeer copies src, which belongs to another device, to dst. It fails with
	// ErrUnsupported if there is no route between the two.
	CopyPeer(ctx context.Context, dst, src Span) error
}

// CopyPeer copies between two devices without the host if the destination's device supports
// it. Otherwise the error is ErrUnsupported, and the caller stages the bytes through host
// memory.
func CopyPeer(ctx context.Context, dst, src Span) error {
	p, ok := dst.Mem.Device().(PeerCopier)
	if !ok {
		return fmt.Errorf("copy from %s to %s: %w", src.Mem.name, dst.Mem.name, ErrUnsupported)
	}
	return p.CopyPeer(ctx, dst, src)
}

// Pinner is the ability to page-lock host memory for the device, so that copies from and to
// it run at full speed.
type Pinner interface {
	// PinHost locks p, which may be a mapping of a file, until unpin is called: once, at
	// any time, even after the device lost its memory or was closed.
	PinHost(p []byte) (unpin func(), err error)
}

// PinHost pins p for the device if the device supports it. Otherwise pinned is false and p
// stays pageable memory, which works but is slower.
func PinHost(d Device, p []byte) (unpin func(), pinned bool) {
	if pinner, ok := d.(Pinner); ok {
		if undo, err := pinner.PinHost(p); err == nil {
			return undo, true
		}
	}
	return func() {}, false
}

// FileTier is the ability of a device whose memory consists of files that the kernel can
// serve itself, one file for each object.
type FileTier interface {
	Files() Files
}

// Files is a flat set of files in pinned host memory, each identified by a number. It is
// safe for concurrent use. The files outlive the process.
type Files interface {
	// Open opens file id for reading and writing; if it does not exist, the error is
	// fs.ErrNotExist. With create it creates the file, empty, and if it exists the error is
	// fs.ErrExist: a new file never has the bytes of another.
	Open(id uint64, create bool) (*os.File, error)
	// Stat returns the kernel's attributes of file id without opening it; fs.ErrNotExist if
	// there is no such file.
	Stat(id uint64) (unix.Stat_t, error)
	// Remove frees the file's memory; a missing file is no error. Open handles keep their
	// bytes.
	Remove(id uint64) error
	// Each calls fn with the number of every file.
	Each(fn func(id uint64) error) error
	// Claim records owner as the owner of the files, before the first use. Files of another
	// owner are ErrForeign: their numbers refer to other objects.
	Claim(owner string) error
	// SetAside moves file id out of the set. Its bytes are kept and count as used, but only
	// the tier's owner can access them. The number is free afterwards.
	SetAside(id uint64) error
	// Aside lists the files that were set aside, in this run and in earlier ones.
	Aside() ([]AsideFile, error)
	// RemoveAside frees the memory of a file that was set aside, by its name; a missing
	// file is no error.
	RemoveAside(name string) error
	// Reserve checks whether a file may grow by n bytes and returns nil or an
	// ErrOutOfMemory. A tier whose file system enforces the limit always returns nil, and
	// the write fails with ENOSPC instead.
	Reserve(n Size) error
	// Numbers are stored with the files, but are not files of the set.
	Numbers
}

// Numbers is a set of named numbers that lives as long as the files it is stored with. It
// is safe for concurrent use, and uses no memory of the tier.
type Numbers interface {
	// Number returns the number that SetNumber stored under a name, in this run or an
	// earlier one; 0 if there is none.
	Number(name string) (uint64, error)
	// SetNumber stores a number below 1<<63 atomically: whenever the process ends, Number
	// returns either it or the previous one. A larger number is ErrRange.
	SetNumber(name string, n uint64) error
}

// AsideFile is a file that was set aside.
type AsideFile struct {
	// Name is the file's name among the files that were set aside, and Path its path.
	Name string
	Path string
	// ID is the number that the file had.
	ID uint64
	// Size is its length, and Used the memory that it occupies.
	Size uint64
	Used Size
	// Changed is the time when its bytes were last changed.
	Changed time.Time
}

// FilesOf returns the files of a device that keeps its memory in files; ok is
// false for all others.
func FilesOf(d Device) (files Files, ok bool) {
	t, ok := d.(FileTier)
	if !ok {
		return nil, false
	}
	return t.Files(), true
}
