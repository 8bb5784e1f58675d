package elem_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
)

var (
	types = []elem.Type{
		elem.Int8, elem.Uint8, elem.Int32, elem.Int64, elem.Float16, elem.BFloat16, elem.Float32, elem.Float64,
	}
	ops = []elem.Op{elem.Sum, elem.Prod, elem.Min, elem.Max, elem.Avg}
)

// value is one element as a number: exact except for large int64, which have a field of
// their own.
type value struct {
	f float64
	i int64
}

// get reads an element in the most obvious way.
func get(t elem.Type, p []byte) value {
	switch t {
	case elem.Int8:
		return value{i: int64(int8(p[0]))}
	case elem.Uint8:
		return value{i: int64(p[0])}
	case elem.Int32:
		return value{i: int64(int32(binary.LittleEndian.Uint32(p)))}
	case elem.Int64:
		return value{i: int64(binary.LittleEndian.Uint64(p))}
	case elem.Float16:
		return value{f: half(binary.LittleEndian.Uint16(p))}
	case elem.BFloat16:
		return value{f: float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(p)) << 16))}
	case elem.Float32:
		return value{f: float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))}
	case elem.Float64:
		return value{f: math.Float64frombits(binary.LittleEndian.Uint64(p))}
	default:
		panic("no such type")
	}
}

// half returns the value of a float16 by its definition.
func half(h uint16) float64 {
	sign, exponent, fraction := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 != 0 {
		sign = -1
	}
	switch exponent {
	case 0:
		return math.Copysign(math.Ldexp(fraction, -24), sign)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return math.Copysign(math.Ldexp(1+fraction/1024, exponent-15), sign)
}

// put writes the nearest element, the even one of two.
func put(t elem.Type, p []byte, v value) {
	switch t {
	case elem.Int8, elem.Uint8:
		p[0] = byte(v.i)
	case elem.Int32:
		binary.LittleEndian.PutUint32(p, uint32(v.i))
	case elem.Int64:
		binary.LittleEndian.PutUint64(p, uint64(v.i))
	case elem.Float16:
		binary.LittleEndian.PutUint16(p, nearest(v.f, half, 0x7c00, 0x7e00))
	case elem.BFloat16:
		wide := float64(float32(v.f))
		binary.LittleEndian.PutUint16(p, nearest(wide, func(h uint16) float64 {
			return float64(math.Float32frombits(uint32(h) << 16))
		}, 0x7f80, 0x7fc0))
	case elem.Float32:
		bits := uint32(0x7fc00000)
		if !math.IsNaN(v.f) {
			bits = math.Float32bits(float32(v.f))
		}
		binary.LittleEndian.PutUint32(p, bits)
	case elem.Float64:
		bits := uint64(0x7ff8000000000000)
		if !math.IsNaN(v.f) {
			bits = math.Float64bits(v.f)
		}
		binary.LittleEndian.PutUint64(p, bits)
	default:
		panic("no such type")
	}
}

// nearest returns the 16 bits whose value is nearest to f. The order of the bits is that of
// the values, up to infinity, which counts as the next power of two.
func nearest(f float64, of func(uint16) float64, infinite, nan uint16) uint16 {
	if math.IsNaN(f) {
		return nan
	}
	sign := uint16(0)
	if math.Signbit(f) {
		sign, f = 0x8000, -f
	}
	value := func(h uint16) float64 {
		if h == infinite {
			return 2*of(infinite-1) - of(infinite-2)
		}
		return of(h)
	}
	low, high := uint16(0), infinite
	if f >= value(high) {
		return sign | high
	}
	for high-low > 1 {
		if mid := (low + high) / 2; value(mid) <= f {
			low = mid
		} else {
			high = mid
		}
	}
	down, up := f-value(low), value(high)-f
	if down < up || down == up && low%2 == 0 {
		return sign | low
	}
	return sign | high
}

// combine combines two elements by the rules in the package's comment.
func combine(t elem.Type, op elem.Op, a, b value) value {
	switch op {
	case elem.Sum, elem.Avg:
		return value{f: a.f + b.f, i: a.i + b.i}
	case elem.Prod:
		f := a.f * b.f
		if t == elem.BFloat16 {
			f = float64(float32(f))
		}
		return value{f: f, i: a.i * b.i}
	case elem.Min:
		if less(b, a) {
			return b
		}
		return a
	case elem.Max:
		if less(a, b) {
			return b
		}
		return a
	}
	panic("no such operation")
}

// less also reports true if either is NaN, which then is the result.
func less(a, b value) bool {
	switch {
	case math.IsNaN(a.f) && math.IsNaN(b.f):
		return false
	case math.IsNaN(a.f) || math.IsNaN(b.f):
		panic("NaN is for the caller")
	case a.f == 0 && b.f == 0 && a.i == b.i:
		return math.Signbit(a.f) && !math.Signbit(b.f)
	}
	return a.f < b.f || a.i < b.i
}

// special returns bits of elements at the boundaries of the rules.
func special(t elem.Type) []uint64 {
	switch t {
	case elem.Int8, elem.Uint8:
		return []uint64{0, 1, 2, 0x7f, 0x80, 0x81, 0xff, 0xfe, 15, 16, 17}
	case elem.Int32:
		return []uint64{0, 1, 2, 1<<31 - 1, 1 << 31, 1<<31 + 1, 1<<32 - 1, 1<<32 - 2, 46341}
	case elem.Int64:
		return []uint64{0, 1, 2, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1<<64 - 1, 1<<64 - 2, 1 << 32, 1<<32 - 1, 3037000500}
	case elem.Float16:
		return []uint64{
			0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x401, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
			0x7e00, 0xfe00, 0x7c01, 0xfdff, 0x7fff, 0x2000, 0x6800, 0x1400,
		}
	case elem.BFloat16:
		return []uint64{
			0, 0x8000, 1, 0x8001, 0x7f, 0x80, 0x81, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
			0x7fc0, 0xffc0, 0x7f81, 0xffbf, 0x7fff, 0x1f80, 0x2000, 0x3000,
		}
	case elem.Float32:
		return []uint64{
			0, 1 << 31, 1, 1<<31 + 1, 0x7fffff, 0x800000, 0x800001, 0x3f800000, 0xbf800000, 0x3f800001, 0x7f7fffff,
			0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffbfffff, 0x4cbebc20, 0xccbebc20,
		}
	case elem.Float64:
		return []uint64{
			0, 1 << 63, 1, 1<<63 + 1, 1<<52 - 1, 1 << 52, 0x3ff << 52, 0xbff << 52, 0x3ff<<52 + 1, 0x7ff<<52 - 1,
			0xfff<<52 - 1, 0x7ff << 52, 0xfff << 52, 0x7ff8 << 48, 0xfff8 << 48, 0x7ff<<52 + 1, 0xfff<<52 + 5,
		}
	default:
		panic("no such type")
	}
}

// pairs returns all pairs of special bits, followed by random ones.
func pairs(t elem.Type, random int) (a, b []byte) {
	size := int(t.Size())
	put := func(p []byte, bits uint64) []byte {
		return append(p, binary.LittleEndian.AppendUint64(nil, bits)[:size]...)
	}
	for _, x := range special(t) {
		for _, y := range special(t) {
			a, b = put(a, x), put(b, y)
		}
	}
	return append(a, kit.Bytes(uint64(t), 0, random*size)...), append(b, kit.Bytes(uint64(t)+100, 0, random*size)...)
}

func TestCombine(t *testing.T) {
	for _, typ := range types {
		a, b := pairs(typ, 10000)
		size := int(typ.Size())
		for _, op := range ops {
			got := make([]byte, len(a))
			if err := elem.Combine(op, typ, got, a, b); err != nil {
				t.Fatal(err)
			}
			want := make([]byte, size)
			for i := 0; i < len(a); i += size {
				x, y := get(typ, a[i:]), get(typ, b[i:])
				if math.IsNaN(x.f) || math.IsNaN(y.f) {
					put(typ, want, value{f: math.NaN()})
				} else {
					put(typ, want, combine(typ, op, x, y))
				}
				if string(want) != string(got[i:i+size]) {
					t.Fatalf("%v of %v: element %d: %x and %x are %x, want %x",
						op, typ, i/size, a[i:i+size], b[i:i+size], got[i:i+size], want)
				}
			}
		}
	}
}

// TestCombineInPlace overwrites either operand, at every length and offset that vectors and
// their remainders may have.
func TestCombineInPlace(t *testing.T) {
	for _, typ := range types {
		a, b := pairs(typ, 400)
		for _, op := range ops {
			for _, n := range []int{0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 300} {
				for _, at := range []int{0, 1, 5, 84} {
					inPlace(t, cut{typ, op, at, n}, a, b)
				}
			}
		}
	}
}

// cut is n elements from at on.
type cut struct {
	typ   elem.Type
	op    elem.Op
	at, n int
}

// inPlace combines parts of a and b, in place of a's and of b's.
func inPlace(t *testing.T, c cut, a, b []byte) {
	t.Helper()
	typ, op, size := c.typ, c.op, int(c.typ.Size())
	part := func(p []byte) []byte { return p[c.at*size : (c.at+c.n)*size] }
	want := make([]byte, c.n*size)
	for i := 0; i < len(want); i += size {
		if err := elem.Combine(op, typ, want[i:i+size], part(a)[i:i+size], part(b)[i:i+size]); err != nil {
			t.Fatal(err)
		}
	}
	for _, first := range []bool{true, false} {
		x, y := bytes.Clone(a), bytes.Clone(b)
		dst, other, before := x, y, bytes.Clone(a)
		if !first {
			dst, other, before = y, x, bytes.Clone(b)
		}
		copy(part(before), want)
		untouched := bytes.Clone(other)
		if err := elem.Combine(op, typ, part(dst), part(x), part(y)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dst, before) || !bytes.Equal(other, untouched) {
			t.Fatalf("%v of %v: %d elements from %d in place of the first (%v): differ", op, typ, c.n, c.at, first)
		}
	}
}

func TestDivide(t *testing.T) {
	for _, typ := range types {
		a, _ := pairs(typ, 3000)
		size := int(typ.Size())
		for _, n := range []uint64{1, 2, 3, 4, 5, 7, 8, 10, 16, 63, 64, 100, 127, 128, 255, 256, 1000, 1 << 31, 1<<32 + 1, 1 << 62, 1 << 63, 1<<64 - 1} {
			got := bytes.Clone(a)
			if err := elem.Divide(typ, got, n); err != nil {
				t.Fatal(err)
			}
			want := make([]byte, size)
			for i := 0; i < len(a); i += size {
				x := get(typ, a[i:])
				put(typ, want, quotient(typ, x, n))
				if string(want) != string(got[i:i+size]) {
					t.Fatalf("%v / %d: element %d: %x is %x, want %x", typ, n, i/size, a[i:i+size], got[i:i+size], want)
				}
			}
		}
	}
}

func quotient(t elem.Type, x value, n uint64) value {
	q := value{}
	switch {
	case x.i >= 0:
		q.i = int64(uint64(x.i) / n)
	default:
		q.i = -int64(uint64(-x.i) / n)
	}
	switch t {
	case elem.Float64:
		q.f = x.f / float64(n)
	case elem.Float16, elem.BFloat16, elem.Float32:
		q.f = float64(float32(x.f) / float32(n))
	default:
	}
	return q
}

func TestRefused(t *testing.T) {
	p := make([]byte, 16)
	for name, err := range map[string]error{
		"type":            elem.Combine(elem.Sum, elem.Bool, p, p, p),
		"no type":         elem.Combine(elem.Sum, 0, p, p, p),
		"operation":       elem.Combine(0, elem.Int8, p, p, p),
		"operation 99":    elem.Combine(99, elem.Int8, p, p, p),
		"shorter a":       elem.Combine(elem.Sum, elem.Int8, p, p[1:], p),
		"shorter b":       elem.Combine(elem.Sum, elem.Int8, p, p, p[1:]),
		"half an element": elem.Combine(elem.Sum, elem.Int32, p[:6], p[:6], p[:6]),
		"divide by 0":     elem.Divide(elem.Int32, p, 0),
		"divide type":     elem.Divide(elem.Complex64, p, 1),
		"divide part":     elem.Divide(elem.Int32, p[:5], 1),
	} {
		if !errors.Is(err, elem.ErrType) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	for typ := elem.Bool; typ <= elem.Complex64; typ++ {
		if got, err := elem.ParseType(typ.String()); err != nil || got != typ {
			t.Errorf("%v: %v, %v", typ, got, err)
		}
	}
	for text, want := range map[string]elem.Type{
		"f32": elem.Float32, "fp32": elem.Float32, "F16": elem.Float16, "bf16": elem.BFloat16, "i8": elem.Int8,
		"u8": elem.Uint8, "FLOAT64": elem.Float64, "i64": elem.Int64,
	} {
		if got, err := elem.ParseType(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, op := range ops {
		if got, err := elem.ParseOp(strings.ToUpper(op.String())); err != nil || got != op {
			t.Errorf("%v: %v, %v", op, got, err)
		}
	}
	if _, err := elem.ParseType("float"); !errors.Is(err, elem.ErrType) || !strings.Contains(err.Error(), "bfloat16") {
		t.Errorf("error %v", err)
	}
	if _, err := elem.ParseOp("add"); !errors.Is(err, elem.ErrType) || !strings.Contains(err.Error(), "prod") {
		t.Errorf("error %v", err)
	}
}

func TestNoAllocations(t *testing.T) {
	for _, typ := range types {
		a, b := pairs(typ, 1000)
		if n := testing.AllocsPerRun(10, func() {
			if elem.Combine(elem.Sum, typ, a, a, b) != nil || elem.Divide(typ, a, 3) != nil {
				t.Fatal("failed")
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", typ, n)
		}
	}
}

func BenchmarkCombine(b *testing.B) {
	const n = 1 << 20
	for _, typ := range types {
		for _, op := range ops[:4] {
			b.Run(typ.String()+"/"+op.String(), func(b *testing.B) {
				x, y := kit.Bytes(1, 0, n), kit.Bytes(2, 0, n)
				dst := make([]byte, n)
				b.SetBytes(n)
				for b.Loop() {
					if err := elem.Combine(op, typ, dst, x, y); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
