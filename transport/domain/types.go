package domain

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/region"
)

// View is a range of elements in a registered buffer, to be sent or received. A View made
// by NewView or All is always inside its buffer.
type View struct {
	extent

	buffer *region.Buffer
	off    devices.Offset
}

// NewView returns a view of count elements, starting at byte offset off. count may be 0.
//
// Errors: devices.ErrRange for a range outside of the buffer; ErrMismatch for a type that
// does not exist.
func NewView(b *region.Buffer, off devices.Offset, t elem.Type, count uint64) (View, error) {
	switch {
	case b == nil:
		return View{}, fmt.Errorf("view without a buffer: %w", devices.ErrRange)
	case t.Size() == 0:
		return View{}, fmt.Errorf("view of %s: %w", t, ErrMismatch)
	case count > uint64(b.Size())/t.Size():
		return View{}, fmt.Errorf("view of %d × %s exceeds its buffer of %d bytes: %w", count, t, uint64(b.Size()), devices.ErrRange)
	}
	if err := b.Check(off, extent{t, count}.size()); err != nil {
		return View{}, fmt.Errorf("view of %d × %s: %w", count, t, err)
	}
	return View{extent{t, count}, b, off}, nil
}

// All returns a view of a whole buffer.
//
// Errors: devices.ErrRange if its size is not a multiple of the type's.
func All(b *region.Buffer, t elem.Type) (View, error) {
	if b != nil && t.Size() != 0 && uint64(b.Size())%t.Size() != 0 {
		return View{}, fmt.Errorf("view of a buffer of %d bytes, which is not a multiple of %s: %w", uint64(b.Size()), t, devices.ErrRange)
	}
	if b == nil || t.Size() == 0 {
		return NewView(b, 0, t, 0)
	}
	return NewView(b, 0, t, uint64(b.Size())/t.Size())
}

// Type returns the type of the elements.
func (v View) Type() elem.Type { return v.typ }

// Count returns the number of elements.
func (v View) Count() uint64 { return v.count }

// Size returns the size of all elements in bytes.
func (v View) Size() devices.Size { return v.size() }

// Buffer returns the registered memory that contains the elements. The zero View has none.
func (v View) Buffer() *region.Buffer { return v.buffer }

// Offset returns the byte offset of the elements in Buffer.
func (v View) Offset() devices.Offset { return v.off }

// Slice returns a view of count elements, starting at element from.
//
// Errors: devices.ErrRange for a range outside of the view.
func (v View) Slice(from, count uint64) (View, error) {
	if from > v.count || count > v.count-from {
		return View{}, fmt.Errorf("elements %d to %d exceed a view of %d: %w", from, from+count, v.count, devices.ErrRange)
	}
	return NewView(v.buffer, v.off+devices.Offset(from*v.typ.Size()), v.typ, count)
}

// host reports whether the view is host memory.
func (v View) host() bool { return v.buffer.Device() == "" }

// bytes returns n bytes of host memory, starting at byte offset off of the view.
//
// Preconditions: the buffer is held.
func (v View) bytes(off, n devices.Size) []byte {
	return v.buffer.Host(v.off+devices.Offset(off), n)
}

// sum returns the size of all views in bytes.
func sum(views []View) devices.Size {
	var n devices.Size
	for _, v := range views {
		n += v.Size()
	}
	return n
}
