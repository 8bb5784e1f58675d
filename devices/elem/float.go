package elem

import (
	"encoding/binary"
	"math"
)

// Floating reports whether GetFloat and PutFloat handle elements of the type: float16,
// bfloat16, float32 and float64.
func (t Type) Floating() bool {
	return t == Float16 || t == BFloat16 || t == Float32 || t == Float64
}

// GetFloat decodes an element of a floating type, exactly.
func GetFloat(t Type, p []byte) float64 {
	switch t {
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	default:
		var wide [1]float32
		widen(t, wide[:], []uint16{binary.LittleEndian.Uint16(p)})
		return float64(wide[0])
	}
}

// PutFloat encodes a value as an element of a floating type. It rounds once, to the
// nearest, ties to even.
func PutFloat(t Type, p []byte, v float64) {
	switch t {
	case Float64:
		binary.LittleEndian.PutUint64(p, math.Float64bits(v))
	case Float32:
		binary.LittleEndian.PutUint32(p, math.Float32bits(float32(v)))
	default:
		var short [1]uint16
		narrow(t, short[:], []float32{sticky(v)})
		binary.LittleEndian.PutUint16(p, short[0])
	}
}

// sticky converts to float32, towards zero, and sets the last bit if that is inexact:
// rounding the result to fewer bits is then the same as rounding v.
func sticky(v float64) float32 {
	f := float32(v)
	bits := math.Float32bits(f)
	switch {
	case v != v:
		bits = bits&(1<<31) | 0x7fc00000 // the only NaN that narrow accepts
	case math.Abs(float64(f)) > math.Abs(v):
		bits = (bits - 1) | 1
	case float64(f) != v:
		bits |= 1
	}
	return math.Float32frombits(bits)
}
