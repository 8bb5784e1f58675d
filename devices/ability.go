package devices

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Access says what a view of device memory is for.
type Access int

// A view is read only, or written too.
const (
	ReadOnly Access = iota
	ReadWrite
)

// View is device memory in the host's address space.
type View struct {
	// Bytes is the memory itself. It must not be touched after Release.
	Bytes []byte
	// Release ends the view; it must be called exactly once. What was
	// written through a ReadWrite view is on the device when it returns.
	Release func()
}

// HostMapper is the ability to show device memory to the host without a
// copy. Views of one memory may be held at the same time, and while a view is
// held the device's copies from and to other parts of the memory go on.
type HostMapper interface {
	// MapHost returns the bytes of the span. It fails with ErrUnsupported
	// for a memory that can't be mapped.
	MapHost(ctx context.Context, s Span, access Access) (View, error)
}

// MapHost maps the span for the host if its device can. Otherwise the error
// is ErrUnsupported, and the caller copies.
func MapHost(ctx context.Context, s Span, access Access) (View, error) {
	m, ok := s.Mem.Device().(HostMapper)
	if !ok {
		return View{}, fmt.Errorf("map memory of %s: %w", s.Mem.name, ErrUnsupported)
	}
	return m.MapHost(ctx, s, access)
}

// PeerCopier is the ability to copy straight between two devices.
type PeerCopier interface {
	// CopyPeer moves src, which belongs to another device, into dst. It
	// fails with ErrUnsupported where there is no way between the two.
	CopyPeer(ctx context.Context, dst, src Span) error
}

// CopyPeer copies between two devices without the host if the destination's
// device can. Otherwise the error is ErrUnsupported, and the caller stages
// the bytes through host memory.
func CopyPeer(ctx context.Context, dst, src Span) error {
	p, ok := dst.Mem.Device().(PeerCopier)
	if !ok {
		return fmt.Errorf("copy from %s to %s: %w", src.Mem.name, dst.Mem.name, ErrUnsupported)
	}
	return p.CopyPeer(ctx, dst, src)
}

// Pinner is the ability to page-lock host memory for the device, so that
// copies from and to it run at full speed.
type Pinner interface {
	// PinHost locks p, which may be a mapping of a file, until unpin is
	// called: once, at any time, also after the device lost its memory or
	// was closed.
	PinHost(p []byte) (unpin func(), err error)
}

// PinHost pins p for the device if it can. Where it can't, p stays plain
// memory, which works and is slower; pinned is false then.
func PinHost(d Device, p []byte) (unpin func(), pinned bool) {
	if pinner, ok := d.(Pinner); ok {
		if undo, err := pinner.PinHost(p); err == nil {
			return undo, true
		}
	}
	return func() {}, false
}

// FileTier is the ability of a device whose memory is files that the kernel
// can serve by itself: one file for each object.
type FileTier interface {
	Files() Files
}

// Files is a flat set of files in pinned host memory, each named by a number.
// It may be used from any goroutine. The files outlive the process.
type Files interface {
	// Open opens file id for reading and writing; one that is missing is
	// fs.ErrNotExist. With create it makes the file, empty, and one that is there
	// is fs.ErrExist: a new file never has the bytes of another.
	Open(id uint64, create bool) (*os.File, error)
	// Stat tells what the kernel knows of file id without opening it; no file
	// is fs.ErrNotExist.
	Stat(id uint64) (unix.Stat_t, error)
	// Remove gives the file's memory back; no file is no error. Handles that
	// are open keep their bytes.
	Remove(id uint64) error
	// Each calls fn with the number of every file.
	Each(fn func(id uint64) error) error
	// Claim says whose files these are, before the first use. Files of
	// another owner are ErrForeign: their numbers mean other objects there.
	Claim(owner string) error
	// SetAside takes file id out of the set and keeps its bytes, which count as
	// used, where nobody but the tier's owner gets at them. Its number is free then.
	SetAside(id uint64) error
	// Aside lists what was set aside, in this run and in those before it.
	Aside() ([]AsideFile, error)
	// RemoveAside gives the memory of a file of Aside back, by its name; one that
	// is not there is no error.
	RemoveAside(name string) error
	// Reserve asks whether a file may grow by n bytes: nil, or an
	// ErrOutOfMemory. A tier whose file system sets the limit by itself
	// always says yes, and the write fails with ENOSPC instead.
	Reserve(n Size) error
	// Numbers are kept with the files, and are none of them.
	Numbers
}

// Numbers is a set of numbers, each under a name, that lives as long as the files it
// is kept with. It may be used from any goroutine, and takes no memory.
type Numbers interface {
	// Number returns what SetNumber has kept under a name, in this run or one
	// before it; 0 for nothing.
	Number(name string) (uint64, error)
	// SetNumber keeps a number below 1<<63, in one step: whenever the process ends,
	// Number returns it or the one before. A larger one is ErrRange.
	SetNumber(name string, n uint64) error
}

// AsideFile is a file that was set aside.
type AsideFile struct {
	// Name is the file's name among those that were set aside, and Path where it is.
	Name string
	Path string
	// ID is the number that it had.
	ID uint64
	// Size is its length, and Used the memory that it takes.
	Size uint64
	Used Size
	// Changed is the time of the last change of its bytes.
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
