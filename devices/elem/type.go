package elem

import (
	"errors"
	"fmt"
)

// ErrType reports a text that is not the name of a type or operation, or elements that
// can't be combined.
var ErrType = errors.New("elem: unknown type or operation")

// Type is a type of elements. Its values are used on the wire.
type Type uint8

// The types, with the names of NumPy and ml_dtypes.
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

// String returns the name of the type, such as "float32".
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

// Size returns the size of one element in bytes; 0 for an invalid type.
func (t Type) Size() uint64 {
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

// Combines reports whether elements of the type can be combined: int8, int32, int64, uint8,
// float16, bfloat16, float32 and float64 can.
func (t Type) Combines() bool {
	switch t {
	case Int8, Uint8, Int32, Int64, Float16, BFloat16, Float32, Float64:
		return true
	default:
		return false
	}
}
