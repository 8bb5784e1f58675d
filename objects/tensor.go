package objects

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// dtypeBits are the element types that user.hmc.dtype can name, by their
// NumPy names and those of safetensors, with their width in bits.
func dtypeBits(name string) (int, bool) {
	switch strings.ToLower(name) {
	case "bool", "int8", "uint8", "i8", "u8", "float8_e4m3fn", "float8_e5m2", "f8_e4m3", "f8_e5m2":
		return 8, true
	case "int16", "uint16", "i16", "u16", "float16", "f16", "bfloat16", "bf16":
		return 16, true
	case "int32", "uint32", "i32", "u32", "float32", "f32":
		return 32, true
	case "int64", "uint64", "i64", "u64", "float64", "f64", "complex64", "c64":
		return 64, true
	case "complex128", "c128":
		return 128, true
	}
	return 0, false
}

// checkDtype says whether a name is a known element type.
func checkDtype(name string) error {
	if _, ok := dtypeBits(name); !ok {
		return fmt.Errorf("dtype %q is not known; use for example float32, bfloat16, int8: %w", name, ErrInvalid)
	}
	return nil
}

// parseSizes reads numbers separated by commas, each at most 63 bits.
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

// elements is the product of a shape; an empty text is a scalar.
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

// checkShape says whether a shape fits size bytes. Without a dtype the bytes
// must be a whole number of elements.
func checkShape(shape, dtype string, size uint64) error {
	n, err := elements(shape)
	if err != nil {
		return err
	}
	width, known := dtypeBits(dtype)
	if !known {
		if (n == 0) == (size == 0) && (n == 0 || size%n == 0) {
			return nil
		}
		return fmt.Errorf("shape %s does not divide %d bytes: %w", shape, size, ErrInvalid)
	}
	high, total := bits.Mul64(n, uint64(width)/8)
	if high != 0 || total != size {
		return fmt.Errorf("shape %s of %s does not make %d bytes: %w", shape, dtype, size, ErrInvalid)
	}
	return nil
}

// checkBlobs says whether blob sizes add up to size.
func checkBlobs(blobs string, size uint64) error {
	sizes, err := parseSizes(blobs)
	if err != nil {
		return fmt.Errorf("blobs: %w", err)
	}
	left := size
	for _, n := range sizes {
		if n > left {
			return fmt.Errorf("blobs %s are more than %d bytes: %w", blobs, size, ErrInvalid)
		}
		left -= n
	}
	if left > 0 {
		return fmt.Errorf("blobs %s are %d bytes short of %d: %w", blobs, left, size, ErrInvalid)
	}
	return nil
}
