package elem

import (
	"math"

	"github.com/x448/float16"
)

// widen converts elements of 16 bits to float32, exactly.
func widen(t Type, dst []float32, src []uint16) {
	src = src[:len(dst)]
	if t == BFloat16 {
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(src[i]) << 16)
		}
		return
	}
	for i := range dst {
		dst[i] = float16.Frombits(src[i]).Float32()
	}
}

// narrow rounds float32 to elements of 16 bits, to nearest even.
func narrow(t Type, dst []uint16, src []float32) {
	src = src[:len(dst)]
	if t == BFloat16 {
		for i := range dst {
			dst[i] = toBFloat(src[i])
		}
		return
	}
	for i := range dst {
		dst[i] = float16.Fromfloat32(src[i]).Bits()
	}
}

// toBFloat rounds x to a bfloat16; the only NaN allowed is nan32, that of all results.
func toBFloat(x float32) uint16 {
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
