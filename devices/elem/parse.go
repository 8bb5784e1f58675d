package elem

import (
	"fmt"
	"slices"
	"strings"
)

// aliases returns the short names of a type, besides String.
func (t Type) aliases() []string {
	switch t {
	case Bool:
		return []string{"b1"}
	case Int8:
		return []string{"i8"}
	case Uint8:
		return []string{"u8"}
	case Int16:
		return []string{"i16"}
	case Uint16:
		return []string{"u16"}
	case Int32:
		return []string{"i32"}
	case Uint32:
		return []string{"u32"}
	case Int64:
		return []string{"i64"}
	case Uint64:
		return []string{"u64"}
	case Float8E4M3:
		return []string{"float8_e4m3", "f8_e4m3", "fp8_e4m3"}
	case Float8E5M2:
		return []string{"f8_e5m2", "fp8_e5m2"}
	case Float16:
		return []string{"f16", "fp16", "half"}
	case BFloat16:
		return []string{"bf16", "bfp16"}
	case Float32:
		return []string{"f32", "fp32"}
	case Float64:
		return []string{"f64", "fp64"}
	case Complex64:
		return []string{"c64"}
	}
	return nil
}

// ParseType parses the name of a type: NumPy's ("float32"), and the short ones ("f32",
// "fp32", "f16", "bf16", "i8", "u8"), in upper or lower case.
//
// Errors: ErrType, which lists the valid names.
func ParseType(text string) (Type, error) {
	want := strings.ToLower(text)
	var known []string
	for t := Bool; t <= Complex64; t++ {
		if t.String() == want || slices.Contains(t.aliases(), want) {
			return t, nil
		}
		known = append(known, t.String())
	}
	return 0, fmt.Errorf("unknown type %q; known are %s: %w", text, strings.Join(known, ", "), ErrType)
}

// ParseOp parses the name of an operation, in upper or lower case. Errors: ErrType, which
// lists the valid names.
func ParseOp(text string) (Op, error) {
	want := strings.ToLower(text)
	var known []string
	for o := Sum; o <= Avg; o++ {
		if o.String() == want {
			return o, nil
		}
		known = append(known, o.String())
	}
	return 0, fmt.Errorf("unknown operation %q; known are %s: %w", text, strings.Join(known, ", "), ErrType)
}
