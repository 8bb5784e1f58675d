package faulty

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// mapper implements the ability to map, including faults.
type mapper struct{ c *core }

// MapHost maps memory of the inner device.
func (m mapper) MapHost(ctx context.Context, s devices.Span, access devices.Access) (devices.View, error) {
	inner, err := m.c.open(s)
	if err != nil {
		return devices.View{}, err
	}
	if err := m.c.ask(Map, s.Len, access == devices.ReadWrite); err != nil {
		return devices.View{}, err
	}
	return devices.MapHost(ctx, inner, access)
}

// peer implements the ability to copy from another device.
type peer struct{ c *core }

// CopyPeer copies into the inner device; the device of src may be wrapped, too.
func (p peer) CopyPeer(ctx context.Context, dst, src devices.Span) error {
	to, err := p.c.open(dst)
	if err != nil {
		return err
	}
	if src.Mem != nil {
		if err := src.Check(src.Mem.Device()); err != nil {
			return err
		}
		if h, ok := src.Mem.Handle().(handle); ok {
			src.Mem = h.inner
		}
	}
	if err := p.c.ask(CopyPeer, dst.Len, true); err != nil {
		return err
	}
	return devices.CopyPeer(ctx, to, src)
}

// pinner implements the ability to pin host memory.
type pinner struct{ c *core }

// PinHost pins p for the inner device.
func (n pinner) PinHost(p []byte) (unpin func(), err error) {
	if err := n.c.ask(Pin, devices.Size(len(p)), false); err != nil {
		return nil, err
	}
	able, ok := n.c.inner.(devices.Pinner)
	if !ok {
		return nil, devices.ErrUnsupported
	}
	return able.PinHost(p)
}

// tier implements the ability to keep memory in files.
type tier struct{ c *core }

// Files returns the files of the inner device. Only the operations on it can be made to fail,
// not the reads and writes of an open file.
func (t tier) Files() devices.Files {
	inner, ok := devices.FilesOf(t.c.inner)
	if !ok {
		return nil
	}
	return files{c: t.c, inner: inner}
}

type files struct {
	c     *core
	inner devices.Files
}

// Open opens a file.
func (f files) Open(id uint64, create bool) (*os.File, error) {
	if err := f.c.ask(OpenFile, 0, create); err != nil {
		return nil, err
	}
	return f.inner.Open(id, create)
}

// Stat returns the attributes of a file. It fails under the same faults as Open.
func (f files) Stat(id uint64) (unix.Stat_t, error) {
	if err := f.c.ask(OpenFile, 0, false); err != nil {
		return unix.Stat_t{}, err
	}
	return f.inner.Stat(id)
}

// Remove removes a file.
func (f files) Remove(id uint64) error {
	if err := f.c.ask(RemoveFile, 0, true); err != nil {
		return err
	}
	return f.inner.Remove(id)
}

// Each lists the files.
func (f files) Each(fn func(id uint64) error) error {
	if err := f.c.ask(ListFiles, 0, false); err != nil {
		return err
	}
	return f.inner.Each(fn)
}

// Reserve reserves space.
func (f files) Reserve(n devices.Size) error {
	if err := f.c.ask(ReserveFile, n, true); err != nil {
		return err
	}
	return f.inner.Reserve(n)
}

// Claim records the owner of the files.
func (f files) Claim(owner string) error { return f.inner.Claim(owner) }

// SetAside keeps a file's bytes. It fails under the same faults as Remove.
func (f files) SetAside(id uint64) error {
	if err := f.c.ask(RemoveFile, 0, true); err != nil {
		return err
	}
	return f.inner.SetAside(id)
}

// Aside lists the files that were set aside.
func (f files) Aside() ([]devices.AsideFile, error) { return f.inner.Aside() }

// RemoveAside removes a file that was set aside.
func (f files) RemoveAside(name string) error { return f.inner.RemoveAside(name) }

// Number returns a number that is stored with the files.
func (f files) Number(name string) (uint64, error) { return f.inner.Number(name) }

// SetNumber stores a number with the files.
func (f files) SetNumber(name string, n uint64) error { return f.inner.SetNumber(name, n) }
