package elem

// Combine sets dst[i] = a[i] op b[i]; Avg adds, and Divide comes at the end.
// All three are of the same length, a multiple of the type's size, and aligned
// to it. dst may be a or b; otherwise none overlaps another. It allocates
// nothing.
//
// Errors: ErrType for a type that does not combine or an operation that does
// not exist; lengths that differ are ErrType too. Nothing is written then.
func Combine(op Op, t Type, dst, a, b []byte) error {
	panic("elem: not written yet")
}

// Divide sets p[i] = p[i] / n, n > 0: the end of Avg. It allocates nothing.
//
// Errors: those of Combine.
func Divide(t Type, p []byte, n uint64) error {
	panic("elem: not written yet")
}

// ParseType reads the name of a type: NumPy's ("float32"), and the short ones
// ("f32", "fp32", "f16", "bf16", "i8", "u8").
//
// Errors: ErrType, which lists what there is.
func ParseType(text string) (Type, error) {
	panic("elem: not written yet")
}

// ParseOp reads the name of an operation. Errors: ErrType.
func ParseOp(text string) (Op, error) {
	panic("elem: not written yet")
}
