package elem

import "math"

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
		dst[i] = fromHalf(src[i])
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
		dst[i] = toHalf(src[i])
	}
}

// toBFloat rounds x to a bfloat16; the only NaN allowed is nan32, that of all results.
func toBFloat(x float32) uint16 {
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// fromHalf returns the value of a float16.
func fromHalf(h uint16) float32 {
	const (
		exponent = 0x7c00 << 13             // its exponent bits, at the position of a float32's
		bias     = (127 - 15) << 23         // the difference of the exponent biases
		least    = float32(1.0 / (1 << 14)) // the smallest normal float16
	)
	bits := uint32(h&0x7fff) << 13
	switch bits & exponent {
	case exponent: // infinite or NaN
		bits += bias + (128-16)<<23
	case 0: // zero or subnormal: normal as a float32
		bits = math.Float32bits(math.Float32frombits(bits+bias+1<<23) - least)
	default:
		bits += bias
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}

// toHalf rounds to a float16, to nearest even.
func toHalf(x float32) uint16 {
	const (
		infinite  = 0xff << 23
		tooLarge  = (127 + 16) << 23 // 65536
		normal    = (127 - 14) << 23 // the smallest normal float16
		subnormal = 0.5              // its last bit has the weight of a subnormal's last bit
	)
	bits := math.Float32bits(x)
	sign := uint16(bits>>16) & 0x8000
	bits &^= 1 << 31
	switch {
	case bits > infinite:
		return sign | 0x7e00
	case bits >= tooLarge:
		return sign | 0x7c00
	case bits < normal:
		// The addition rounds at the last bit of a subnormal.
		sum := math.Float32frombits(bits) + subnormal
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(subnormal))
	}
	odd := bits >> 13 & 1
	bits -= (127 - 15) << 23
	return sign | uint16((bits+0xfff+odd)>>13)
}
