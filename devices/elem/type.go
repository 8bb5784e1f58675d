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

// properties are the properties of a type; aliases are its short names.
type properties struct {
	name     string
	size     uint64
	combines bool
	aliases  []string
}

//nolint:gochecknoglobals // a table that never changes
var types = [...]properties{
	Bool:       {"bool", 1, false, []string{"b1"}},
	Int8:       {"int8", 1, true, []string{"i8"}},
	Uint8:      {"uint8", 1, true, []string{"u8"}},
	Int16:      {"int16", 2, false, []string{"i16"}},
	Uint16:     {"uint16", 2, false, []string{"u16"}},
	Int32:      {"int32", 4, true, []string{"i32"}},
	Uint32:     {"uint32", 4, false, []string{"u32"}},
	Int64:      {"int64", 8, true, []string{"i64"}},
	Uint64:     {"uint64", 8, false, []string{"u64"}},
	Float8E4M3: {"float8_e4m3fn", 1, false, []string{"float8_e4m3", "f8_e4m3", "fp8_e4m3"}},
	Float8E5M2: {"float8_e5m2", 1, false, []string{"f8_e5m2", "fp8_e5m2"}},
	Float16:    {"float16", 2, true, []string{"f16", "fp16", "half"}},
	BFloat16:   {"bfloat16", 2, true, []string{"bf16", "bfp16"}},
	Float32:    {"float32", 4, true, []string{"f32", "fp32"}},
	Float64:    {"float64", 8, true, []string{"f64", "fp64"}},
	Complex64:  {"complex64", 8, false, []string{"c64"}},
}

// properties returns the properties of the type, zero for an invalid one.
func (t Type) properties() *properties {
	if int(t) >= len(types) {
		t = 0
	}
	return &types[t]
}

// String returns the name of the type, such as "float32".
func (t Type) String() string {
	if name := t.properties().name; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Size returns the size of one element in bytes; 0 for an invalid type.
func (t Type) Size() uint64 { return t.properties().size }

// Combines reports whether elements of the type can be combined: int8, int32, int64, uint8,
// float16, bfloat16, float32 and float64 can.
func (t Type) Combines() bool { return t.properties().combines }
