package domain

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/region"
)

// View is some elements in a registered buffer: what is sent and received.
// One that was made by NewView or All lies inside its buffer.
type View struct {
	extent

	buffer *region.Buffer
	off    devices.Offset
}

// NewView returns count elements from off, which is in bytes. None is fine.
//
// Errors: devices.ErrRange for what is outside of the buffer; ErrMismatch for
// a type that does not exist.
func NewView(b *region.Buffer, off devices.Offset, t elem.Type, count uint64) (View, error) {
	switch {
	case b == nil:
		return View{}, fmt.Errorf("view of no buffer: %w", devices.ErrRange)
	case t.Size() == 0:
		return View{}, fmt.Errorf("view of %s: %w", t, ErrMismatch)
	case count > uint64(b.Size())/t.Size():
		return View{}, fmt.Errorf("view of %d × %s in a buffer of %d bytes: %w", count, t, uint64(b.Size()), devices.ErrRange)
	}
	if err := b.Check(off, extent{t, count}.size()); err != nil {
		return View{}, fmt.Errorf("view of %d × %s: %w", count, t, err)
	}
	return View{extent{t, count}, b, off}, nil
}

// All returns the whole of a buffer.
//
// Errors: devices.ErrRange where its size is no multiple of the type's.
func All(b *region.Buffer, t elem.Type) (View, error) {
	if b != nil && t.Size() != 0 && uint64(b.Size())%t.Size() != 0 {
		return View{}, fmt.Errorf("view of a buffer of %d bytes as %s: %w", uint64(b.Size()), t, devices.ErrRange)
	}
	if b == nil || t.Size() == 0 {
		return NewView(b, 0, t, 0)
	}
	return NewView(b, 0, t, uint64(b.Size())/t.Size())
}

// Type and Count are what the view was made with.
func (v View) Type() elem.Type { return v.typ }

// Count is the number of elements.
func (v View) Count() uint64 { return v.count }

// Size is the bytes of all elements.
func (v View) Size() devices.Size { return v.size() }

// Buffer is the registered memory that the elements are in, and Offset where
// they begin there, in bytes. The zero View has no buffer.
func (v View) Buffer() *region.Buffer { return v.buffer }

// Offset returns the place of the elements in Buffer.
func (v View) Offset() devices.Offset { return v.off }

// Slice is count elements from the given one on.
//
// Errors: devices.ErrRange for what is outside of the view.
func (v View) Slice(from, count uint64) (View, error) {
	if from > v.count || count > v.count-from {
		return View{}, fmt.Errorf("elements %d to %d of a view of %d: %w", from, from+count, v.count, devices.ErrRange)
	}
	return NewView(v.buffer, v.off+devices.Offset(from*v.typ.Size()), v.typ, count)
}

// host says whether the bytes are host memory.
func (v View) host() bool { return v.buffer.Device() == "" }

// bytes are n bytes from off of host memory.
//
// Preconditions: the buffer is held.
func (v View) bytes(off, n devices.Size) []byte {
	return v.buffer.Host(v.off+devices.Offset(off), n)
}

// sum is the bytes of all views.
func sum(views []View) devices.Size {
	var n devices.Size
	for _, v := range views {
		n += v.Size()
	}
	return n
}
