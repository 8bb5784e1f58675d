package runner

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// put encodes a value as an element; floating point values are rounded to the nearest, ties
// to even. A value that the integer type cannot represent is an error.
func put(p []byte, t elem.Type, v float64) error {
	switch t {
	case elem.Float64:
		binary.LittleEndian.PutUint64(p, math.Float64bits(v))
	case elem.Float32:
		binary.LittleEndian.PutUint32(p, math.Float32bits(float32(v)))
	case elem.Float16:
		binary.LittleEndian.PutUint16(p, toShort(v, 5, 10))
	case elem.BFloat16:
		binary.LittleEndian.PutUint16(p, toShort(v, 8, 7))
	default:
		bits, signed := uint(8*t.Size()), isSigned(t)
		least, most := 0.0, math.Ldexp(1, int(bits))
		if signed {
			least, most = -math.Ldexp(1, int(bits)-1), math.Ldexp(1, int(bits)-1)
		}
		if v != math.Trunc(v) || v < least || v >= most {
			return fmt.Errorf("%v is not a valid %s", v, t)
		}
		whole := uint64(v)
		if v < 0 {
			whole = uint64(int64(v))
		}
		var all [8]byte
		binary.LittleEndian.PutUint64(all[:], whole)
		copy(p, all[:t.Size()])
	}
	return nil
}

// toShort converts a value to a 16-bit format with the given numbers of bits of exponent
// and mantissa. It rounds once, from the 64 bits, to the nearest, ties to even.
func toShort(v float64, exponent, mantissa int) uint16 {
	sign := uint16(math.Float64bits(v)>>63) << 15
	bias := 1<<(exponent-1) - 1
	infinite := uint16(1<<exponent-1) << mantissa
	abs := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return sign | infinite | 1<<(mantissa-1)
	case math.IsInf(v, 0):
		return sign | infinite
	case abs == 0:
		return sign
	}
	_, e := math.Frexp(abs)             // abs is 0.5 to 1, times 2^e
	unit := max(e-1, 1-bias) - mantissa // the last place is 2^unit
	steps := math.RoundToEven(math.Ldexp(abs, -unit))
	// A carry out of the mantissa correctly increments the exponent, as adjacent encodings
	// are adjacent values.
	whole := uint64(steps)
	if field := unit + mantissa + bias; whole >= 1<<mantissa {
		whole += uint64(field-1) << mantissa
	}
	return sign | uint16(min(whole, uint64(infinite)))
}

// get decodes an element of a floating point type.
func get(p []byte, t elem.Type) float64 {
	switch t {
	case elem.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	case elem.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	case elem.Float16:
		return fromShort(binary.LittleEndian.Uint16(p), 5, 10)
	default:
		return fromShort(binary.LittleEndian.Uint16(p), 8, 7)
	}
}

func fromShort(bits uint16, exponent, mantissa int) float64 {
	bias := 1<<(exponent-1) - 1
	field, rest := int(bits>>mantissa)&(1<<exponent-1), float64(bits&(1<<mantissa-1))
	v := math.Ldexp(rest, 1-bias-mantissa)
	switch {
	case field == 1<<exponent-1 && rest != 0:
		return math.NaN()
	case field == 1<<exponent-1:
		v = math.Inf(1)
	case field != 0:
		v = math.Ldexp(rest+math.Ldexp(1, mantissa), field-bias-mantissa)
	}
	if bits>>15 != 0 {
		return -v
	}
	return v
}

func isFloat(t elem.Type) bool {
	switch t {
	case elem.Float16, elem.BFloat16, elem.Float32, elem.Float64:
		return true
	default:
		return false
	}
}

func isSigned(t elem.Type) bool {
	switch t {
	case elem.Int8, elem.Int16, elem.Int32, elem.Int64:
		return true
	default:
		return false
	}
}

// show formats an element for people.
func show(p []byte, t elem.Type) string {
	if isFloat(t) {
		return strconv.FormatFloat(get(p, t), 'g', -1, 64)
	}
	var all [8]byte
	copy(all[:], p)
	whole := binary.LittleEndian.Uint64(all[:])
	if !isSigned(t) {
		return strconv.FormatUint(whole, 10)
	}
	unused := 64 - 8*t.Size()
	return strconv.FormatInt(int64(whole<<unused)>>unused, 10)
}
