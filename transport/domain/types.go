package domain

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Type is what the elements of a message are. It is checked against the
// peer's, and the bytes are moved as they are.
type Type uint8

// The types, by NumPy's and ml_dtypes' names. Their numbers are on the wire.
const (
	Bool Type = iota + 1
	Int8
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
	Float8E4M3
	Float8E5M2
	Float16
	BFloat16
	Float32
	Float64
	Complex64
)

// String is the name of the type: "float32".
func (t Type) String() string {
	names := [...]string{
		Bool: "bool", Int8: "int8", Uint8: "uint8", Int16: "int16", Uint16: "uint16", Int32: "int32", Uint32: "uint32",
		Int64: "int64", Uint64: "uint64", Float8E4M3: "float8_e4m3fn", Float8E5M2: "float8_e5m2", Float16: "float16",
		BFloat16: "bfloat16", Float32: "float32", Float64: "float64", Complex64: "complex64",
	}
	if t == 0 || int(t) >= len(names) {
		return fmt.Sprintf("type %d", uint8(t))
	}
	return names[t]
}

// Size is the bytes of one element; 0 for what is no type.
func (t Type) Size() devices.Size {
	switch t {
	case Bool, Int8, Uint8, Float8E4M3, Float8E5M2:
		return 1
	case Int16, Uint16, Float16, BFloat16:
		return 2
	case Int32, Uint32, Float32:
		return 4
	case Int64, Uint64, Float64, Complex64:
		return 8
	}
	return 0
}

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
func NewView(b *region.Buffer, off devices.Offset, t Type, count uint64) (View, error) {
	switch {
	case b == nil:
		return View{}, fmt.Errorf("view of no buffer: %w", devices.ErrRange)
	case t.Size() == 0:
		return View{}, fmt.Errorf("view of %s: %w", t, ErrMismatch)
	case count > uint64(b.Size())/uint64(t.Size()):
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
func All(b *region.Buffer, t Type) (View, error) {
	if b != nil && t.Size() != 0 && b.Size()%t.Size() != 0 {
		return View{}, fmt.Errorf("view of a buffer of %d bytes as %s: %w", uint64(b.Size()), t, devices.ErrRange)
	}
	if b == nil || t.Size() == 0 {
		return NewView(b, 0, t, 0)
	}
	return NewView(b, 0, t, uint64(b.Size()/t.Size()))
}

// Type and Count are what the view was made with.
func (v View) Type() Type { return v.typ }

// Count is the number of elements.
func (v View) Count() uint64 { return v.count }

// Size is the bytes of all elements.
func (v View) Size() devices.Size { return v.size() }

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
