package tensors

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Type is the type of a tensor's elements.
type Type struct {
	// Name is the value of user.hmc.dtype: the name in NumPy or ml_dtypes ("float32",
	// "bfloat16"), or NumPy's type string for a type without a name (">f4", "|S10").
	Name string
	// Bits is the width of one element.
	Bits uint64
	// Descr is the type string for a .npy header.
	Descr string
}

// safetensorsTypes has the types of the safetensors format, by their names there. NumPy has
// no names for BF16 and those after it: in the .npy header they are plain bytes of that width,
// as np.save writes arrays of ml_dtypes, and elements smaller than a byte are shown as the
// bytes that they are packed in.
//
//nolint:gochecknoglobals // a table that never changes
var safetensorsTypes = map[string]Type{
	"BOOL":        {"bool", 8, "|b1"},
	"I8":          {"int8", 8, "|i1"},
	"U8":          {"uint8", 8, "|u1"},
	"I16":         {"int16", 16, "<i2"},
	"U16":         {"uint16", 16, "<u2"},
	"F16":         {"float16", 16, "<f2"},
	"I32":         {"int32", 32, "<i4"},
	"U32":         {"uint32", 32, "<u4"},
	"F32":         {"float32", 32, "<f4"},
	"I64":         {"int64", 64, "<i8"},
	"U64":         {"uint64", 64, "<u8"},
	"F64":         {"float64", 64, "<f8"},
	"C64":         {"complex64", 64, "<c8"},
	"BF16":        {"bfloat16", 16, "<V2"},
	"F8_E4M3":     {"float8_e4m3fn", 8, "|V1"},
	"F8_E5M2":     {"float8_e5m2", 8, "|V1"},
	"F8_E8M0":     {"float8_e8m0fnu", 8, "|V1"},
	"F8_E4M3FNUZ": {"float8_e4m3fnuz", 8, "|V1"},
	"F8_E5M2FNUZ": {"float8_e5m2fnuz", 8, "|V1"},
	"F6_E2M3":     {"float6_e2m3fn", 6, "|u1"},
	"F6_E3M2":     {"float6_e3m2fn", 6, "|u1"},
	"F4":          {"float4_e2m1fn", 4, "|u1"},
}

// TypeNamed returns the type for a name given by the user: a value of user.hmc.dtype, or a
// safetensors name, both case-insensitive, or a NumPy type string that begins with its byte
// order.
func TypeNamed(name string) (Type, bool) {
	if t, ok := safetensorsTypes[strings.ToUpper(name)]; ok {
		return t, true
	}
	lower := strings.ToLower(name)
	if lower == "complex128" || lower == "c128" {
		return Type{"complex128", 128, "<c16"}, true
	}
	for _, t := range safetensorsTypes {
		if t.Name == lower {
			return t, true
		}
	}
	if name != "" && strings.ContainsRune("<>|", rune(name[0])) {
		t, err := numpyType(name)
		return t, err == nil
	}
	return Type{}, false
}

// maxItem bounds the width of strings and of plain bytes.
const maxItem = 1 << 30

// numpyType parses a NumPy type string.
//
// Errors: ErrFormat for objects, whose bytes are pickles, and for types that NumPy does not
// have.
func numpyType(descr string) (Type, error) {
	rest, order := descr, byte('=')
	if rest != "" && strings.IndexByte("<>|=", rest[0]) >= 0 {
		order, rest = rest[0], rest[1:]
	}
	if rest == "" {
		return Type{}, fmt.Errorf("%w: type %q is empty", ErrFormat, descr)
	}
	kind := rest[0]
	if kind == 'O' {
		return Type{}, fmt.Errorf("%w: type %q is for Python objects, which are not plain bytes", ErrFormat, descr)
	}
	digits, unit := rest[1:], ""
	if kind == 'M' || kind == 'm' {
		if at := strings.IndexByte(digits, '['); at >= 0 {
			digits, unit = digits[:at], digits[at:]
		}
	}
	if kind == '?' && digits == "" {
		kind, digits = 'b', "1"
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	name, bits := itemOf(kind, n)
	if err != nil || digits[0] == '0' || bits == 0 || !isUnit(unit) {
		return Type{}, fmt.Errorf("%w: type %q is not one of NumPy's plain types", ErrFormat, descr)
	}
	t := Type{Name: name, Bits: bits, Descr: descr}
	if name == "" || order == '>' && bits > 8 {
		t.Name = descr
	}
	return t, nil
}

// itemOf returns the name and the width of an element; width 0 if there is no such type.
func itemOf(kind byte, n uint64) (name string, bits uint64) {
	if n == 0 || n > maxItem {
		return "", 0
	}
	one := func(prefix string, sizes ...uint64) (string, uint64) {
		if slices.Contains(sizes, n) {
			return prefix + strconv.FormatUint(8*n, 10), 8 * n
		}
		return "", 0
	}
	switch kind {
	case 'b':
		if n == 1 {
			return "bool", 8
		}
	case 'i':
		return one("int", 1, 2, 4, 8)
	case 'u':
		return one("uint", 1, 2, 4, 8)
	case 'f':
		return one("float", 2, 4, 8, 16)
	case 'c':
		return one("complex", 8, 16, 32)
	case 'S', 'V':
		return "", 8 * n
	case 'U':
		return "", 32 * n
	case 'M', 'm':
		if n == 8 {
			return "", 64
		}
	}
	return "", 0
}

// isUnit reports whether a text is empty or a unit of time such as "[ns]" or "[25s]".
func isUnit(text string) bool {
	if text == "" {
		return true
	}
	inner, closed := strings.CutSuffix(text[1:], "]")
	inner = strings.TrimLeft(inner, "0123456789")
	switch inner {
	case "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as":
		return closed
	}
	return false
}
