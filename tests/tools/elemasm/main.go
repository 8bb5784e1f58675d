// Elemasm generates the loops of package devices/elem for AVX2 and F16C:
//
//	go generate ./devices/elem
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The numbers of operations in package elem.
const (
	opProd = 2
	opMin  = 3
	opMax  = 4
)

// width is the size of a vector, in bytes.
const width = 32

// kind combines elements of a type, one vector at a time.
type kind struct {
	name, what string
	// setup creates the constants that the loops use.
	setup func() constants
	// combine returns a op b.
	combine func(c constants, op int, a, b reg.VecVirtual) reg.VecVirtual
}

// constants holds vectors that are live during a whole loop.
type constants struct {
	nan, low, round, one reg.VecVirtual
}

func none() constants { return constants{} }

func main() {
	ConstraintExpr("amd64")
	for _, k := range []kind{
		{"Int8", "int8", lowBytes, int8s(func(a, b, r reg.VecVirtual) { VPMINSB(b, a, r) }, func(a, b, r reg.VecVirtual) { VPMAXSB(b, a, r) })},
		{"Uint8", "uint8", lowBytes, int8s(func(a, b, r reg.VecVirtual) { VPMINUB(b, a, r) }, func(a, b, r reg.VecVirtual) { VPMAXUB(b, a, r) })},
		{"Int32", "int32", none, int32s},
		{"Int64", "int64", none, int64s},
		{"Float16", "float16", nan32, halves(halfToFloat, floatToHalf)},
		{"BFloat16", "bfloat16", brain, halves(brainToFloat, floatToBrain)},
		{"Float32", "float32", nan32, float32s},
		{"Float64", "float64", nan64, float64s},
	} {
		combineLoop(k)
	}
	divideLoop("Float16", nan32, false, func(c constants, x, by reg.VecVirtual) reg.VecVirtual {
		return divided(halfToFloat, floatToHalf)(c, x, by)
	})
	divideLoop("BFloat16", brain, false, func(c constants, x, by reg.VecVirtual) reg.VecVirtual {
		return divided(brainToFloat, floatToBrain)(c, x, by)
	})
	divideLoop("Float32", nan32, false, func(c constants, x, by reg.VecVirtual) reg.VecVirtual {
		r := YMM()
		VDIVPS(by, x, r)
		return ordered32(c, r)
	})
	divideLoop("Float64", nan64, true, func(c constants, x, by reg.VecVirtual) reg.VecVirtual {
		r := YMM()
		VDIVPD(by, x, r)
		return ordered64(c, r)
	})
	Generate()
}

// combineLoop generates the function of one type, with a loop for each operation.
func combineLoop(k kind) {
	name := "combine" + k.name
	TEXT(name, NOSPLIT, "func(op uint8, dst, a, b *byte, n uintptr)")
	Pragma("noescape")
	Doc(name + " combines n bytes of " + k.what + " by op, which is not Avg; n is a multiple of 32.")
	op := Load(Param("op"), GP8())
	dst := Load(Param("dst"), GP64())
	a := Load(Param("a"), GP64())
	b := Load(Param("b"), GP64())
	n := Load(Param("n"), GP64())
	c := k.setup()
	at := GP64()
	XORQ(at, at)
	end := GP64()
	MOVQ(n, end)
	ANDQ(I32(-4*width), end)
	for _, o := range []struct {
		op   int
		name string
	}{{opProd, "prod"}, {opMin, "min"}, {opMax, "max"}} {
		CMPB(op, U8(o.op))
		JE(LabelRef(o.name))
	}
	one := func(op, shift int) {
		x, y := YMM(), YMM()
		VMOVDQU(Mem{Base: a, Index: at, Scale: 1, Disp: shift}, x)
		VMOVDQU(Mem{Base: b, Index: at, Scale: 1, Disp: shift}, y)
		VMOVDQU(k.combine(c, op, x, y), Mem{Base: dst, Index: at, Scale: 1, Disp: shift})
	}
	for _, o := range []struct {
		op   int
		name string
	}{{1, "sum"}, {opProd, "prod"}, {opMin, "min"}, {opMax, "max"}} {
		Label(o.name)
		CMPQ(at, end)
		JAE(LabelRef(o.name + "Rest"))
		for i := range 4 {
			one(o.op, i*width)
		}
		ADDQ(Imm(4*width), at)
		JMP(LabelRef(o.name))
		Label(o.name + "Rest")
		CMPQ(at, n)
		JAE(LabelRef("done"))
		one(o.op, 0)
		ADDQ(Imm(width), at)
		JMP(LabelRef(o.name + "Rest"))
	}
	Label("done")
	VZEROUPPER()
	RET()
}

// divideLoop generates the function that divides elements of one type in place.
func divideLoop(name string, setup func() constants, double bool, divide func(c constants, x, by reg.VecVirtual) reg.VecVirtual) {
	by := "float32"
	if double {
		by = "float64"
	}
	TEXT("divide"+name, NOSPLIT, "func(p *byte, n uintptr, by "+by+")")
	Pragma("noescape")
	Doc("divide" + name + " divides the elements in n bytes; n is a multiple of 32.")
	p := Load(Param("p"), GP64())
	n := Load(Param("n"), GP64())
	scalar := Load(Param("by"), XMM())
	divisor := YMM()
	if double {
		VBROADCASTSD(scalar, divisor)
	} else {
		VBROADCASTSS(scalar, divisor)
	}
	c := setup()
	ADDQ(p, n)
	Label("loop")
	CMPQ(p, n)
	JAE(LabelRef("done"))
	x := YMM()
	VMOVDQU(Mem{Base: p}, x)
	VMOVDQU(divide(c, x, divisor), Mem{Base: p})
	ADDQ(Imm(width), p)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// broadcast32 returns a vector whose 32-bit words all have the given bits.
func broadcast32(bits uint32) reg.VecVirtual {
	word, low, v := GP32(), XMM(), YMM()
	MOVL(U32(bits), word)
	VMOVD(word, low)
	VPBROADCASTD(low, v)
	return v
}

func lowBytes() constants { return constants{low: broadcast32(0x00ff00ff)} }

func nan32() constants { return constants{nan: broadcast32(0x7fc00000)} }

func nan64() constants {
	word, low, v := GP64(), XMM(), YMM()
	MOVQ(U64(0x7ff8000000000000), word)
	VMOVQ(word, low)
	VPBROADCASTQ(low, v)
	return constants{nan: v}
}

func brain() constants {
	c := nan32()
	c.round, c.one = broadcast32(0x7fff), broadcast32(1)
	return c
}

// int8s multiplies the odd and the even bytes separately, as words.
func int8s(least, most func(a, b, r reg.VecVirtual)) func(constants, int, reg.VecVirtual, reg.VecVirtual) reg.VecVirtual {
	return func(c constants, op int, a, b reg.VecVirtual) reg.VecVirtual {
		r := YMM()
		switch op {
		default:
			VPADDB(b, a, r)
		case opProd:
			even, odd, other := YMM(), YMM(), YMM()
			VPMULLW(b, a, even)
			VPAND(c.low, even, even)
			VPSRLW(U8(8), a, odd)
			VPSRLW(U8(8), b, other)
			VPMULLW(other, odd, odd)
			VPSLLW(U8(8), odd, odd)
			VPOR(even, odd, r)
		case opMin:
			least(a, b, r)
		case opMax:
			most(a, b, r)
		}
		return r
	}
}

func int32s(_ constants, op int, a, b reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	switch op {
	default:
		VPADDD(b, a, r)
	case opProd:
		VPMULLD(b, a, r)
	case opMin:
		VPMINSD(b, a, r)
	case opMax:
		VPMAXSD(b, a, r)
	}
	return r
}

// int64s multiplies by halves; the product of the two high halves overflows anyway.
func int64s(_ constants, op int, a, b reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	switch op {
	default:
		VPADDQ(b, a, r)
	case opProd:
		cross, other := YMM(), YMM()
		VPSRLQ(U8(32), a, cross)
		VPMULUDQ(b, cross, cross)
		VPSRLQ(U8(32), b, other)
		VPMULUDQ(a, other, other)
		VPADDQ(other, cross, cross)
		VPSLLQ(U8(32), cross, cross)
		VPMULUDQ(b, a, r)
		VPADDQ(cross, r, r)
	case opMin, opMax:
		greater := YMM()
		VPCMPGTQ(b, a, greater)
		if op == opMin {
			VPBLENDVB(greater, b, a, r)
		} else {
			VPBLENDVB(greater, a, b, r)
		}
	}
	return r
}

// The predicate of a comparison that is true if either operand is NaN.
const unordered = 3

// ordered32 replaces each NaN by the canonical NaN of all results.
func ordered32(c constants, x reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	VCMPPS(U8(unordered), x, x, r)
	VBLENDVPS(r, c.nan, x, r)
	return r
}

func ordered64(c constants, x reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	VCMPPD(U8(unordered), x, x, r)
	VBLENDVPD(r, c.nan, x, r)
	return r
}

// float32s computes the minimum or maximum in both operand orders: the instruction returns its
// second operand if both are zeros, so that the bits of both results show whether one is
// negative.
func float32s(c constants, op int, a, b reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	switch op {
	default:
		VADDPS(b, a, r)
		return ordered32(c, r)
	case opProd:
		VMULPS(b, a, r)
		return ordered32(c, r)
	case opMin, opMax:
		other, mask := YMM(), YMM()
		if op == opMin {
			VMINPS(b, a, r)
			VMINPS(a, b, other)
			VORPS(other, r, r)
		} else {
			VMAXPS(b, a, r)
			VMAXPS(a, b, other)
			VANDPS(other, r, r)
		}
		VCMPPS(U8(unordered), b, a, mask)
		VBLENDVPS(mask, c.nan, r, r)
		return r
	}
}

func float64s(c constants, op int, a, b reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	switch op {
	default:
		VADDPD(b, a, r)
		return ordered64(c, r)
	case opProd:
		VMULPD(b, a, r)
		return ordered64(c, r)
	case opMin, opMax:
		other, mask := YMM(), YMM()
		if op == opMin {
			VMINPD(b, a, r)
			VMINPD(a, b, other)
			VORPD(other, r, r)
		} else {
			VMAXPD(b, a, r)
			VMAXPD(a, b, other)
			VANDPD(other, r, r)
		}
		VCMPPD(U8(unordered), b, a, mask)
		VBLENDVPD(mask, c.nan, r, r)
		return r
	}
}

// widener converts 8 elements of 16 bits to 8 float32; narrower rounds 16 float32 to a vector.
type (
	widener  func(half reg.VecVirtual) reg.VecVirtual
	narrower func(c constants, low, high reg.VecVirtual) reg.VecVirtual
)

// split returns the lower and upper half of a vector.
func split(v reg.VecVirtual) (low, high reg.VecVirtual) {
	high = XMM()
	VEXTRACTI128(U8(1), v, high)
	return v.AsX().(reg.VecVirtual), high
}

func halves(widen widener, narrow narrower) func(constants, int, reg.VecVirtual, reg.VecVirtual) reg.VecVirtual {
	return func(c constants, op int, a, b reg.VecVirtual) reg.VecVirtual {
		al, ah := split(a)
		bl, bh := split(b)
		low := float32s(c, op, widen(al), widen(bl))
		high := float32s(c, op, widen(ah), widen(bh))
		return narrow(c, low, high)
	}
}

func divided(widen widener, narrow narrower) func(constants, reg.VecVirtual, reg.VecVirtual) reg.VecVirtual {
	return func(c constants, x, by reg.VecVirtual) reg.VecVirtual {
		part := func(half reg.VecVirtual) reg.VecVirtual {
			r := YMM()
			VDIVPS(by, widen(half), r)
			return ordered32(c, r)
		}
		low, high := split(x)
		return narrow(c, part(low), part(high))
	}
}

func halfToFloat(half reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	VCVTPH2PS(half, r)
	return r
}

func floatToHalf(_ constants, low, high reg.VecVirtual) reg.VecVirtual {
	l, h, r := XMM(), XMM(), YMM()
	VCVTPS2PH(U8(0), low, l)
	VCVTPS2PH(U8(0), high, h)
	VINSERTI128(U8(1), h, l.AsY(), r)
	return r
}

func brainToFloat(half reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	VPMOVZXWD(half, r)
	VPSLLD(U8(16), r, r)
	return r
}

// floatToBrain rounds to nearest, ties to even.
func floatToBrain(c constants, low, high reg.VecVirtual) reg.VecVirtual {
	round := func(x reg.VecVirtual) reg.VecVirtual {
		r := YMM()
		VPSRLD(U8(16), x, r)
		VPAND(c.one, r, r)
		VPADDD(x, r, r)
		VPADDD(c.round, r, r)
		VPSRLD(U8(16), r, r)
		return r
	}
	l, h, r := round(low), round(high), YMM()
	// Packing works on each half of the vectors separately.
	VPACKUSDW(h, l, r)
	VPERMQ(U8(0xd8), r, r)
	return r
}
