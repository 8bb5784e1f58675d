package cuda

import (
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// kernelName returns the name of the kernel for elements of a type, in the module that ptx
// returns.
func kernelName(t elem.Type, op elem.Op) string { return "reduce_" + op.String() + "_" + t.String() }

// ptx returns the module that combines elements of a type, in the language that every
// driver compiles for its card. The results of the kernels equal those of package elem on
// the host, bit for bit: each operation specifies its rounding, so that none is fused;
// subnormal numbers are kept, which is the behaviour without ".ftz"; and every NaN is
// replaced by the same one.
func ptx(t elem.Type) string {
	var text strings.Builder
	text.WriteString(".version 6.0\n.target sm_50\n.address_size 64\n")
	for op := elem.Sum; op <= elem.Max; op++ {
		fmt.Fprintf(&text, kernelFrame, kernelName(t, op), shiftOf(t), strings.Join(kernelBody(t, op), "\n\t"))
	}
	return text.String()
}

// kernelFrame makes each thread process the element with its index: a and b are the
// addresses of the operands, and the result is stored at a.
const kernelFrame = `
.visible .entry %s(.param .u64 dst, .param .u64 src, .param .u64 count)
{
	.reg .pred past, nan, same;
	.reg .b16 h, h1, h2;
	.reg .b32 block, width, thread, r, r1, r2;
	.reg .b64 a, b, n, i, d, d1, d2;
	.reg .f32 f, f1, f2;
	.reg .f64 g, g1, g2;
	ld.param.u64 a, [dst];
	ld.param.u64 b, [src];
	ld.param.u64 n, [count];
	cvta.to.global.u64 a, a;
	cvta.to.global.u64 b, b;
	mov.u32 block, %%ctaid.x;
	mov.u32 width, %%ntid.x;
	mov.u32 thread, %%tid.x;
	cvt.u64.u32 i, thread;
	mad.wide.u32 i, block, width, i;
	setp.ge.u64 past, i, n;
	@past bra DONE;
	shl.b64 i, i, %d;
	add.u64 a, a, i;
	add.u64 b, b, i;
	%s
DONE:
	ret;
}
`

// shiftOf returns the binary logarithm of an element's size.
func shiftOf(t elem.Type) int {
	shift := 0
	for n := t.Size(); n > 1; n /= 2 {
		shift++
	}
	return shift
}

// kernelBody returns the instructions that load, combine and store an element.
func kernelBody(t elem.Type, op elem.Op) []string {
	switch t {
	case elem.Int8:
		return around("ld.global.s8 r%d, [%s];", integerOp(op, "s32", "r"), "st.global.u8 [a], r;")
	case elem.Uint8:
		return around("ld.global.u8 r%d, [%s];", integerOp(op, "u32", "r"), "st.global.u8 [a], r;")
	case elem.Int32:
		return around("ld.global.u32 r%d, [%s];", integerOp(op, "s32", "r"), "st.global.u32 [a], r;")
	case elem.Int64:
		return around("ld.global.u64 d%d, [%s];", integerOp(op, "s64", "d"), "st.global.u64 [a], d;")
	case elem.Float16:
		body := around("ld.global.u16 h%[1]d, [%[2]s];\n\tcvt.f32.f16 f%[1]d, h%[1]d;\n\tmov.b32 r%[1]d, f%[1]d;", floatOp32(op))
		// A conversion produces a NaN of its own.
		return append(body, "cvt.rn.f16.f32 h, f;", "selp.b16 h, 0x7E00, h, nan;", "st.global.u16 [a], h;")
	case elem.BFloat16:
		body := around("ld.global.u16 r%[1]d, [%[2]s];\n\tshl.b32 r%[1]d, r%[1]d, 16;\n\tmov.b32 f%[1]d, r%[1]d;", floatOp32(op))
		return append(body, "mov.b32 r, f;", "shr.u32 r1, r, 16;", "and.b32 r1, r1, 1;", "add.u32 r, r, r1;",
			"add.u32 r, r, 0x7FFF;", "shr.u32 r, r, 16;", "st.global.u16 [a], r;")
	case elem.Float32:
		return around("ld.global.u32 r%[1]d, [%[2]s];\n\tmov.b32 f%[1]d, r%[1]d;", floatOp32(op), "st.global.f32 [a], f;")
	case elem.Float64:
		return around("ld.global.u64 d%[1]d, [%[2]s];\n\tmov.b64 g%[1]d, d%[1]d;", floatOp(op, "64", "g", "d", "0d7FF8000000000000"), "st.global.f64 [a], g;")
	default:
		return nil
	}
}

// around returns body with the loads of both operands before it and store after it.
func around(load string, body []string, store ...string) []string {
	all := []string{fmt.Sprintf(load, 1, "a"), fmt.Sprintf(load, 2, "b")}
	return append(append(all, body...), store...)
}

func integerOp(op elem.Op, kind, reg string) []string {
	name := map[elem.Op]string{elem.Sum: "add", elem.Prod: "mul.lo", elem.Min: "min", elem.Max: "max"}[op]
	return []string{fmt.Sprintf("%s.%s %[3]s, %[3]s1, %[3]s2;", name, kind, reg)}
}

// floatOp32 combines f1 and f2, whose bits are in r1 and r2.
func floatOp32(op elem.Op) []string {
	return floatOp(op, "32", "f", "r", "0f7FC00000")
}

// floatOp combines two numbers of a width, which are in float and in bit registers.
func floatOp(op elem.Op, width, f, b, nan string) []string {
	fill := strings.NewReplacer("W", width, "F", f, "B", b, "NAN", nan)
	var lines []string
	switch op {
	case elem.Prod:
		lines = []string{"mul.rn.fW F, F1, F2;", "setp.nan.fW nan, F, F;"}
	case elem.Min, elem.Max:
		name, zeros := "min", "or"
		if op == elem.Max {
			name, zeros = "max", "and"
		}
		// If two operands are equal, one may be -0: combining their bits decides.
		lines = []string{
			name + ".fW F, F1, F2;", "setp.eq.fW same, F1, F2;", zeros + ".bW B, B1, B2;", "@same mov.bW F, B;",
			"setp.nan.fW nan, F1, F2;",
		}
	default:
		lines = []string{"add.rn.fW F, F1, F2;", "setp.nan.fW nan, F, F;"}
	}
	lines = append(lines, "selp.fW F, NAN, F, nan;")
	for i := range lines {
		lines[i] = fill.Replace(lines[i])
	}
	return lines
}
