package elem

import (
	"encoding/binary"
	"math"
	"testing"
)

// short encodes a value as an element of 16 bits.
func short(t Type, v float64) uint16 {
	var p [2]byte
	PutFloat(t, p[:], v)
	return binary.LittleEndian.Uint16(p[:])
}

// value decodes an element of 16 bits.
func value(t Type, bits uint16) float64 {
	return GetFloat(t, binary.LittleEndian.AppendUint16(nil, bits))
}

// nearest finds the neighbour of a value in a 16-bit format by trying all encodings: the
// nearest one, and of two the even one.
func nearest(t Type, v float64) uint16 {
	infinity := map[Type]float64{Float16: 1 << 16, BFloat16: math.Ldexp(1, 128)} // it counts as the next larger number
	var best uint16
	distance := math.Inf(1)
	for bits := range 1 << 15 {
		x := value(t, uint16(bits))
		if math.IsNaN(x) {
			continue
		}
		if math.IsInf(x, 1) {
			x = infinity[t]
		}
		d := math.Abs(x - math.Abs(v))
		if d < distance || d == distance && bits%2 == 0 {
			best, distance = uint16(bits), d
		}
	}
	if math.Signbit(v) {
		best |= 1 << 15
	}
	return best
}

func TestShortFloats(t *testing.T) {
	values := []float64{0, math.Copysign(0, -1), 1, -1, 65504, 65519, 65520, 65536, 1e300, 5.960464477539063e-08, 2.98e-08, 2.9802322387695312e-08, 3e-8, 6.1e-5, 6.097555160522461e-05, 0.1, 1.0 / 3, 2047, 2049, 2051, 4098, 3.3895313892515355e38, 1e-40, -7.25}
	for i := range 300 {
		values = append(values, math.Ldexp(1+float64(i*7919%1000)/997, i%34-24))
	}
	// Values beside a tie, closer to it than a float32 can tell.
	for _, v := range []float64{2049, 2051, 257, 259, 65520, math.Ldexp(1, -25), math.Ldexp(3, -25), math.Ldexp(1, -134)} {
		values = append(values, v, math.Nextafter(v, 0), math.Nextafter(-v, math.Inf(-1)))
	}
	for _, f := range []Type{Float16, BFloat16} {
		for _, v := range values {
			if got, want := short(f, v), nearest(f, v); got != want {
				t.Errorf("%v: %v is %#04x, want %#04x", f, v, got, want)
			}
		}
		for _, nan := range []float64{math.NaN(), math.Copysign(math.NaN(), -1), math.Float64frombits(0x7ff0000000000001)} {
			if !math.IsNaN(value(f, short(f, nan))) {
				t.Errorf("%v: NaN is %#04x", f, short(f, nan))
			}
		}
		for bits := range 1 << 16 {
			v := value(f, uint16(bits))
			if got := short(f, v); got != uint16(bits) && !math.IsNaN(v) {
				t.Fatalf("%#04x comes back as %#04x", bits, got)
			}
		}
	}
}
