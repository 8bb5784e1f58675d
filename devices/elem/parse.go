package elem

import (
	"fmt"
	"slices"
	"strings"
)

// ParseType parses the name of a type: NumPy's ("float32"), and the short ones ("f32",
// "fp32", "f16", "bf16", "i8", "u8"), in upper or lower case.
//
// Errors: ErrType, which lists the valid names.
func ParseType(text string) (Type, error) {
	want := strings.ToLower(text)
	var known []string
	for t := Bool; t <= Complex64; t++ {
		if t.String() == want || slices.Contains(t.properties().aliases, want) {
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
