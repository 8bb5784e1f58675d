package objects

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/objects/tensors"
)

func checkDtype(name string) error {
	if _, ok := tensors.TypeNamed(name); !ok {
		return fmt.Errorf("unknown dtype %q; use for example float32, bfloat16, int8: %w", name, ErrInvalid)
	}
	return nil
}

// headerXattr returns the dtype or shape from the header of a file with a single
// tensor. It returns no shape if the user has set a dtype that the shape does not fit.
func (h *headers) headerXattr(ctx context.Context, a Attr, name string) (string, bool) {
	if name != xattrDtype && name != xattrShape {
		return "", false
	}
	t, ok := h.tensorIn(ctx, &a)
	if !ok {
		return "", false
	}
	if name == xattrDtype {
		return t.Type.Name, true
	}
	dtype, err := h.attrs.textXattr(ctx, a.Ino, xattrDtype)
	if err != nil || dtype != "" && checkShape(t.ShapeText(), dtype, t.Len) != nil {
		return "", false
	}
	return t.ShapeText(), true
}

// isComputed reports whether an attribute that was not set has a value from the file's
// header.
func (h *headers) isComputed(ctx context.Context, ino Ino, name string) bool {
	if name != xattrDtype && name != xattrShape {
		return false
	}
	a, err := h.attrs.get(ctx, ino)
	if err != nil {
		return false
	}
	_, ok := h.headerXattr(ctx, a, name)
	return ok
}

// tensorSize returns the number of bytes that dtype and shape describe: those of the
// tensor in a file with a single one, else all.
func (h *headers) tensorSize(ctx context.Context, a Attr) uint64 {
	if t, ok := h.tensorIn(ctx, &a); ok {
		return t.Len
	}
	return a.Size
}

// parseSizes parses numbers separated by commas, each of at most 63 bits.
func parseSizes(text string) ([]uint64, error) {
	var sizes []uint64
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(part, 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%q in %q is not a number: %w", part, text, ErrInvalid)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// elements returns the product of a shape; an empty text is a scalar.
func elements(shape string) (uint64, error) {
	if shape == "" {
		return 1, nil
	}
	dims, err := parseSizes(shape)
	if err != nil {
		return 0, fmt.Errorf("shape: %w", err)
	}
	product := uint64(1)
	for _, d := range dims {
		high, low := bits.Mul64(product, d)
		if high != 0 || low > maxSize {
			return 0, fmt.Errorf("shape %s has more than 2^63 elements: %w", shape, ErrInvalid)
		}
		product = low
	}
	return product, nil
}

// checkShape checks that a shape fits size bytes. Without a dtype, size must be a
// multiple of the number of elements.
func checkShape(shape, dtype string, size uint64) error {
	n, err := elements(shape)
	if err != nil {
		return err
	}
	t, known := tensors.TypeNamed(dtype)
	if !known {
		if (n == 0) == (size == 0) && (n == 0 || size%n == 0) {
			return nil
		}
		return fmt.Errorf("the elements of shape %s do not divide %d bytes: %w", shape, size, ErrInvalid)
	}
	high, low := bits.Mul64(n, t.Bits)
	if high != size>>61 || low != size<<3 {
		return fmt.Errorf("shape %s of dtype %s does not have %d bytes: %w", shape, dtype, size, ErrInvalid)
	}
	return nil
}

// checkBlobs checks that blob sizes add up to size.
func checkBlobs(blobs string, size uint64) error {
	sizes, err := parseSizes(blobs)
	if err != nil {
		return fmt.Errorf("blobs: %w", err)
	}
	left := size
	for _, n := range sizes {
		if n > left {
			return fmt.Errorf("blobs %s add up to more than %d bytes: %w", blobs, size, ErrInvalid)
		}
		left -= n
	}
	if left > 0 {
		return fmt.Errorf("blobs %s are %d bytes short of %d: %w", blobs, left, size, ErrInvalid)
	}
	return nil
}
