package elem

import "golang.org/x/sys/cpu"

//go:generate go -C ../../tests/tools/elemasm run . -out ../../../devices/elem/loops_amd64.s -stubs ../../../devices/elem/loops_amd64.go -pkg elem

// vectorBytes is the number of bytes that the loops process at a time.
const vectorBytes = 32

// vectors reports whether the processor supports the loops for the type.
func vectors(t Type) bool {
	return cpu.X86.HasAVX2 && (t != Float16 || cpu.X86.HasF16C)
}

// combineVectors returns how many of the first bytes it has combined.
func combineVectors(op Op, t Type, dst, a, b []byte) int {
	n := uintptr(len(dst)) &^ (vectorBytes - 1)
	if n == 0 || !vectors(t) {
		return 0
	}
	o, d, x, y := uint8(op), &dst[0], &a[0], &b[0]
	switch t {
	case Int8:
		combineInt8(o, d, x, y, n)
	case Uint8:
		combineUint8(o, d, x, y, n)
	case Int32:
		combineInt32(o, d, x, y, n)
	case Int64:
		combineInt64(o, d, x, y, n)
	case Float16:
		combineFloat16(o, d, x, y, n)
	case BFloat16:
		combineBFloat16(o, d, x, y, n)
	case Float32:
		combineFloat32(o, d, x, y, n)
	case Float64:
		combineFloat64(o, d, x, y, n)
	default:
		return 0
	}
	return int(n)
}

// divideVectors returns how many of the first bytes it has divided.
func divideVectors(t Type, p []byte, by uint64) int {
	n := uintptr(len(p)) &^ (vectorBytes - 1)
	if n == 0 || !vectors(t) {
		return 0
	}
	switch t {
	case Float16:
		divideFloat16(&p[0], n, float32(by))
	case BFloat16:
		divideBFloat16(&p[0], n, float32(by))
	case Float32:
		divideFloat32(&p[0], n, float32(by))
	case Float64:
		divideFloat64(&p[0], n, float64(by))
	default:
		return 0
	}
	return int(n)
}
