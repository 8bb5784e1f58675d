package collective

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// put writes a number as an element.
func put(t elem.Type, p []byte, v float64) {
	switch t {
	case elem.Float64:
		binary.LittleEndian.PutUint64(p, math.Float64bits(v))
	case elem.Float32:
		binary.LittleEndian.PutUint32(p, math.Float32bits(float32(v)))
	case elem.BFloat16:
		binary.LittleEndian.PutUint16(p, uint16(math.Float32bits(float32(v))>>16))
	case elem.Float16:
		// Numbers in [0.5, 4) have a normalized form.
		bits := math.Float32bits(float32(math.Copysign(max(math.Abs(v), 0.5), v)))
		binary.LittleEndian.PutUint16(p, uint16(bits>>16&0x8000|(bits>>23&0xff-112)<<10|bits>>13&0x3ff))
	default:
	}
}

// number reads an element.
func number(t elem.Type, p []byte) float64 {
	switch t {
	case elem.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	case elem.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	case elem.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(p)) << 16))
	default:
		h := uint32(binary.LittleEndian.Uint16(p))
		sign := math.Float32frombits(h>>15<<31 | 0x3f800000)
		if h&0x7c00 == 0 {
			return float64(sign) * float64(h&0x3ff) * math.Pow(2, -24)
		}
		return float64(math.Float32frombits(h>>15<<31 | (h>>10&0x1f+112)<<23 | h&0x3ff<<13))
	}
}

// differ returns the first element of a result that differs from the expected one:
// different bits or, for sums and products of floating point numbers, whose terms may come
// in any order, a value that is not close.
func differ(t plan.Task, got, want []byte) int {
	if bytes.Equal(got, want) {
		return -1
	}
	size := int(t.Type.Size())
	near := t.Kind.Combines() && t.Op != elem.Min && t.Op != elem.Max && !t.Strict
	epsilon := map[elem.Type]float64{elem.Float16: 1e-3, elem.BFloat16: 8e-3, elem.Float32: 1.2e-7, elem.Float64: 2.3e-16}[t.Type]
	for i := 0; i < len(want); i += size {
		if bytes.Equal(got[i:i+size], want[i:i+size]) {
			continue
		}
		if near && epsilon > 0 {
			g, w := number(t.Type, got[i:]), number(t.Type, want[i:])
			scale := max(math.Abs(w), 4)
			if math.Abs(g-w) <= epsilon*scale*float64(2*t.Ranks) || math.IsInf(g, 0) || math.IsInf(w, 0) || t.Op == elem.Prod && math.Abs(g-w) <= epsilon*float64(4*t.Ranks)*max(math.Abs(w), epsilon) {
				continue
			}
		}
		return i / size
	}
	return -1
}
