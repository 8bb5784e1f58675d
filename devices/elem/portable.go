package elem

import "math"

type integer interface {
	int8 | uint8 | int32 | int64
}

type float interface {
	float32 | float64
}

// The bits of every NaN result.
const (
	nan32 = 0x7fc00000
	nan64 = 0x7ff8000000000000
)

// combinePortable is Combine on any processor, and the reference for the vector loops.
func combinePortable(op Op, t Type, dst, a, b []byte) {
	if len(dst) == 0 {
		return
	}
	switch t {
	case Int8:
		integers(op, cast[int8](dst), cast[int8](a), cast[int8](b))
	case Uint8:
		integers(op, dst, a, b)
	case Int32:
		integers(op, cast[int32](dst), cast[int32](a), cast[int32](b))
	case Int64:
		integers(op, cast[int64](dst), cast[int64](a), cast[int64](b))
	case Float16, BFloat16:
		halves(op, t, cast[uint16](dst), cast[uint16](a), cast[uint16](b))
	case Float32:
		floats(op, cast[float32](dst), cast[float32](a), cast[float32](b), math.Float32frombits(nan32))
	case Float64:
		floats(op, cast[float64](dst), cast[float64](a), cast[float64](b), math.Float64frombits(nan64))
	default:
	}
}

func integers[T integer](op Op, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case Sum, Avg:
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	case Prod:
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	case Min:
		for i := range dst {
			dst[i] = min(a[i], b[i])
		}
	case Max:
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	}
}

// floats is like integers, with nan for each NaN result: the result of a processor for two
// NaNs depends on their order. The conversions prevent the compiler from fusing operations
// that must be rounded separately.
func floats[T float](op Op, dst, a, b []T, nan T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case Sum, Avg:
		for i := range dst {
			dst[i] = ordered(T(a[i]+b[i]), nan)
		}
	case Prod:
		for i := range dst {
			dst[i] = ordered(T(a[i]*b[i]), nan)
		}
	case Min:
		for i := range dst {
			dst[i] = ordered(min(a[i], b[i]), nan)
		}
	case Max:
		for i := range dst {
			dst[i] = ordered(max(a[i], b[i]), nan)
		}
	}
}

func ordered[T float](x, nan T) T {
	if x != x {
		return nan
	}
	return x
}

// halves combines elements of 16 bits as float32, a piece at a time.
func halves(op Op, t Type, dst, a, b []uint16) {
	var x, y [256]float32
	for len(dst) > 0 {
		n := min(len(dst), len(x))
		widen(t, x[:n], a[:n])
		widen(t, y[:n], b[:n])
		floats(op, x[:n], x[:n], y[:n], math.Float32frombits(nan32))
		narrow(t, dst[:n], x[:n])
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

// dividePortable is Divide on any processor.
func dividePortable(t Type, p []byte, n uint64) {
	if len(p) == 0 {
		return
	}
	switch t {
	case Int8:
		divideSigned(cast[int8](p), n)
	case Uint8:
		for i := range p {
			p[i] = byte(uint64(p[i]) / n)
		}
	case Int32:
		divideSigned(cast[int32](p), n)
	case Int64:
		divideSigned(cast[int64](p), n)
	case Float16, BFloat16:
		divideHalves(t, cast[uint16](p), float32(n))
	case Float32:
		divideFloats(cast[float32](p), float32(n), math.Float32frombits(nan32))
	case Float64:
		divideFloats(cast[float64](p), float64(n), math.Float64frombits(nan64))
	default:
	}
}

func divideSigned[T int8 | int32 | int64](p []T, n uint64) {
	if n > math.MaxInt64 {
		for i, x := range p {
			p[i] = 0
			if n == 1<<63 && int64(x) == math.MinInt64 {
				p[i]-- // the only number that reaches -1
			}
		}
		return
	}
	for i, x := range p {
		p[i] = T(int64(x) / int64(n))
	}
}

func divideFloats[T float](p []T, n, nan T) {
	for i, x := range p {
		p[i] = ordered(x/n, nan)
	}
}

func divideHalves(t Type, p []uint16, n float32) {
	var x [256]float32
	for len(p) > 0 {
		m := min(len(p), len(x))
		widen(t, x[:m], p[:m])
		divideFloats(x[:m], n, math.Float32frombits(nan32))
		narrow(t, p[:m], x[:m])
		p = p[m:]
	}
}
