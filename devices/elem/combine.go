package elem

import "fmt"

// Combine sets dst[i] = a[i] op b[i]; Avg adds, and Divide completes it. All three slices
// must have the same length, a multiple of the type's size, and be aligned to it. dst may
// be a or b; otherwise none may overlap another. It allocates nothing.
//
// Errors: ErrType for a type that does not combine or an operation that does
// not exist; lengths that differ are ErrType too. Nothing is written then.
func Combine(op Op, t Type, dst, a, b []byte) error {
	switch {
	case !t.Combines():
		return fmt.Errorf("combine elements of %v: %w", t, ErrType)
	case !op.Known():
		return fmt.Errorf("combine elements by %v: %w", op, ErrType)
	case len(dst) != len(a) || len(dst) != len(b):
		return fmt.Errorf("combine %d and %d bytes into %d: %w", len(a), len(b), len(dst), ErrType)
	case uint64(len(dst))%t.Size() != 0:
		return fmt.Errorf("combine %d bytes of %v: %w", len(dst), t, ErrType)
	}
	if op == Avg {
		op = Sum
	}
	n := combineVectors(op, t, dst, a, b)
	combinePortable(op, t, dst[n:], a[n:], b[n:])
	return nil
}

// Divide sets p[i] = p[i] / n, n > 0: the last step of Avg. It allocates nothing.
//
// Errors: those of Combine; n = 0 is ErrType.
func Divide(t Type, p []byte, n uint64) error {
	switch {
	case !t.Combines():
		return fmt.Errorf("divide elements of %v: %w", t, ErrType)
	case n == 0:
		return fmt.Errorf("divide by 0: %w", ErrType)
	case uint64(len(p))%t.Size() != 0:
		return fmt.Errorf("divide %d bytes of %v: %w", len(p), t, ErrType)
	}
	done := divideVectors(t, p, n)
	dividePortable(t, p[done:], n)
	return nil
}
