package cuda

import (
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
)

var combining = []elem.Type{
	elem.Int8, elem.Uint8, elem.Int32, elem.Int64, elem.Float16, elem.BFloat16, elem.Float32, elem.Float64,
}

// thread runs a kernel for one element, implementing the instructions that ptx uses as PTX
// ISA 6.0 specifies. Registers hold bits. It ends the test at an unknown instruction.
type thread struct {
	t      *testing.T
	regs   map[string]uint64
	params map[string]uint64
	memory []byte
}

// instruction matches a line: a guard, an operation, and its arguments.
var instruction = regexp.MustCompile(`^(?:@(\w+) )?([\w.]+)(?: (.*))?;$`)

func (th *thread) run(module, kernel string) {
	th.t.Helper()
	_, body, found := strings.Cut(module, ".entry "+kernel+"(")
	if !found {
		th.t.Fatalf("no kernel %s", kernel)
	}
	_, body, _ = strings.Cut(body, "{\n")
	body, _, _ = strings.Cut(body, "\n}")
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "DONE:" || line == "ret;" || strings.HasPrefix(line, ".reg ") {
			continue
		}
		m := instruction.FindStringSubmatch(line)
		if m == nil {
			th.t.Fatalf("no instruction: %q", line)
		}
		if m[1] != "" && th.regs[m[1]] == 0 {
			continue
		}
		if m[2] == "bra" {
			return
		}
		var args []string
		for a := range strings.SplitSeq(m[3], ",") {
			args = append(args, strings.TrimSpace(a))
		}
		th.do(m[2], args)
	}
}

// value returns the bits of a register or number.
func (th *thread) value(text string) uint64 {
	th.t.Helper()
	if v, ok := th.regs[text]; ok {
		return v
	}
	digits, base := strings.TrimPrefix(strings.TrimPrefix(text, "0f"), "0d"), 16
	switch {
	case strings.HasPrefix(text, "0x"):
		digits = text[2:]
	case digits == text:
		base = 10
	}
	v, err := strconv.ParseUint(digits, base, 64)
	if err != nil {
		th.t.Fatalf("no register and no number: %q", text)
	}
	return v
}

func f32(bits uint64) float32         { return math.Float32frombits(uint32(bits)) }
func bits32(f float32) uint64         { return uint64(math.Float32bits(f)) }
func extend(v uint64, n uint) int64   { return int64(v<<(64-n)) >> (64 - n) }
func cut(v uint64, n uint) uint64     { return v << (64 - n) >> (64 - n) }
func widthOf(kind string) (bits uint) { n, _ := strconv.Atoi(kind[1:]); return uint(n) }

// do executes one instruction. The first argument is the destination.
func (th *thread) do(op string, args []string) {
	th.t.Helper()
	parts := strings.Split(op, ".")
	kind := parts[len(parts)-1]
	from := func(i int) uint64 { th.t.Helper(); return th.value(args[i]) }
	at := func(i int) uint64 { th.t.Helper(); return th.value(strings.Trim(args[i], "[]")) }
	switch op {
	case "ld.param.u64":
		th.regs[args[0]] = th.params[strings.Trim(args[1], "[]")]
	case "cvta.to.global.u64", "mov.b32", "mov.b64", "cvt.u64.u32":
		th.regs[args[0]] = from(1)
	case "mov.u32":
		th.regs[args[0]] = th.params[args[1]]
	case "mad.wide.u32":
		th.regs[args[0]] = from(1)*from(2) + from(3)
	case "cvt.f32.f16":
		th.regs[args[0]] = bits32(float32(halfValue(uint16(from(1)))))
	case "cvt.rn.f16.f32":
		th.regs[args[0]] = uint64(nearestHalf(float64(f32(from(1)))))
	case "setp.ge.u64":
		th.set(args[0], from(1) >= from(2))
	case "setp.nan.f32", "setp.eq.f32":
		a, b := float64(f32(from(1))), float64(f32(from(2)))
		th.set(args[0], parts[1] == "nan" && (a != a || b != b) || parts[1] == "eq" && a == b)
	case "setp.nan.f64", "setp.eq.f64":
		a, b := math.Float64frombits(from(1)), math.Float64frombits(from(2))
		th.set(args[0], parts[1] == "nan" && (a != a || b != b) || parts[1] == "eq" && a == b)
	case "selp.f32", "selp.f64", "selp.b16":
		v := from(2)
		if th.regs[args[3]] != 0 {
			v = from(1)
		}
		th.regs[args[0]] = v
	default:
		switch {
		case strings.HasPrefix(op, "ld.global."):
			p := at(1)
			v := cut(binary.LittleEndian.Uint64(th.memory[p:]), widthOf(kind))
			if kind[0] == 's' {
				v = cut(uint64(extend(v, widthOf(kind))), 32)
			}
			th.regs[args[0]] = v
		case strings.HasPrefix(op, "st.global."):
			p := at(0)
			text := binary.LittleEndian.AppendUint64(nil, from(1))
			copy(th.memory[p:p+uint64(widthOf(kind)/8)], text)
		case kind[0] == 'f':
			th.regs[args[0]] = th.float(parts, from(1), from(2))
		default:
			th.regs[args[0]] = th.integer(op, parts, from(1), from(2))
		}
	}
}

func (th *thread) set(predicate string, is bool) {
	th.regs[predicate] = 0
	if is {
		th.regs[predicate] = 1
	}
}

// float computes with rounding to nearest even. A NaN result is the card's own.
func (th *thread) float(parts []string, a, b uint64) uint64 {
	th.t.Helper()
	var of func(x, y float64) float64
	switch strings.Join(parts[:len(parts)-1], ".") {
	case "add.rn":
		of = func(x, y float64) float64 { return x + y }
	case "mul.rn":
		of = func(x, y float64) float64 { return x * y }
	case "min":
		of = lesser
	case "max":
		of = func(x, y float64) float64 { return -lesser(-x, -y) }
	default:
		th.t.Fatalf("unknown instruction %v", parts)
	}
	if parts[len(parts)-1] == "f64" {
		r := of(math.Float64frombits(a), math.Float64frombits(b))
		if r != r {
			return 0x7fffffffffffffff
		}
		return math.Float64bits(r)
	}
	// A sum or product of two float32, computed as float64 and rounded again, is correctly
	// rounded.
	r := of(float64(f32(a)), float64(f32(b)))
	if r != r {
		return 0x7fffffff
	}
	return bits32(float32(r))
}

// lesser is PTX's min: if one operand is NaN, the result is the other. Which of two zeros
// it returns must not matter: here it is the wrong one.
func lesser(x, y float64) float64 {
	switch {
	case x != x:
		return y
	case y != y || x < y:
		return x
	case x == 0 && y == 0 && !math.Signbit(x):
		return x
	}
	return y
}

func (th *thread) integer(op string, parts []string, a, b uint64) uint64 {
	th.t.Helper()
	kind := parts[len(parts)-1]
	n := widthOf(kind)
	a, b = cut(a, n), cut(b, n)
	if parts[0] == "shl" || parts[0] == "shr" {
		if parts[0] == "shl" {
			return cut(a<<b, n)
		}
		return a >> b
	}
	less := a < b
	if kind[0] == 's' {
		less = extend(a, n) < extend(b, n)
	}
	switch {
	case parts[0] == "add":
		return cut(a+b, n)
	case op == "mul.lo."+kind:
		return cut(a*b, n)
	case parts[0] == "and":
		return a & b
	case parts[0] == "or":
		return a | b
	case parts[0] == "min" && less, parts[0] == "max" && !less:
		return a
	case parts[0] == "min", parts[0] == "max":
		return b
	}
	th.t.Fatalf("unknown instruction %s", op)
	return 0
}

func halfValue(h uint16) float64 {
	v := math.Ldexp(float64(h&1023), -24)
	switch e := int(h >> 10 & 31); {
	case e == 31 && h&1023 != 0:
		return math.NaN()
	case e == 31:
		v = math.Inf(1)
	case e > 0:
		v = math.Ldexp(1+float64(h&1023)/1024, e-15)
	}
	if h>>15 != 0 {
		v = -v
	}
	return v
}

// nearestHalf searches all values of 16 bits.
func nearestHalf(f float64) uint16 {
	switch a := math.Abs(f); {
	case f != f:
		return 0x7fff
	case a >= 65520 && f > 0:
		return 0x7c00
	case a >= 65520:
		return 0xfc00
	}
	sign := uint16(0)
	if math.Signbit(f) {
		sign, f = 0x8000, -f
	}
	low, high := uint16(0), uint16(0x7c00)
	for high-low > 1 {
		if mid := (low + high) / 2; halfValue(mid) <= f {
			low = mid
		} else {
			high = mid
		}
	}
	upper := 65536.0
	if high != 0x7c00 {
		upper = halfValue(high)
	}
	if down, up := f-halfValue(low), upper-f; down < up || down == up && low%2 == 0 {
		return sign | low
	}
	return sign | high
}

// TestPTX runs the kernels with an interpreter of PTX.
func TestPTX(t *testing.T) {
	interesting := map[elem.Type][]uint64{
		elem.Float16: {
			0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfc01, 0x1400,
		},
		elem.BFloat16: {0, 0x8000, 1, 0x807f, 0x80, 0x3f80, 0xbf81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xff81, 0x2000},
		elem.Float32: {
			0, 1 << 31, 1, 0x807fffff, 0x800000, 0x3f800000, 0xbf800001, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
			0x7fc00000, 0xff800001, 0x20000000,
		},
		elem.Float64: {
			0, 1 << 63, 1, 1 << 52, 0x3ff << 52, 0xbff<<52 + 1, 0x7ff<<52 - 1, 0xfff<<52 - 1, 0x7ff << 52, 0xfff << 52,
			0x7ff8 << 48, 0xfff<<52 + 1,
		},
	}
	for _, typ := range combining {
		operands := interesting[typ]
		for i := range 8 {
			operands = append(operands, binary.LittleEndian.Uint64(kit.Bytes(uint64(typ), int64(8*i), 8)))
		}
		for op := elem.Sum; op <= elem.Max; op++ {
			for i, a := range operands {
				for _, b := range operands {
					onePair(t, typ, op, [2]uint64{a, b}, i == 0)
				}
			}
		}
	}
}

// onePair combines the third elements of two memories with the first thread of the second
// block of two. With past, the next thread, which has no element, is run too.
func onePair(t *testing.T, typ elem.Type, op elem.Op, operands [2]uint64, past bool) {
	t.Helper()
	size := typ.Size()
	memory, want := make([]byte, 64), make([]byte, size)
	a, b := memory[2*size:3*size], memory[32+2*size:32+3*size]
	copy(a, binary.LittleEndian.AppendUint64(nil, operands[0]))
	copy(b, binary.LittleEndian.AppendUint64(nil, operands[1]))
	if err := elem.Combine(op, typ, want, a, b); err != nil {
		t.Fatal(err)
	}
	params := map[string]uint64{"dst": 0, "src": 32, "count": 3, "%ctaid.x": 1, "%ntid.x": 2, "%tid.x": 0}
	(&thread{t, map[string]uint64{}, params, memory}).run(ptx(typ), kernelName(typ, op))
	if string(a) != string(want) {
		t.Fatalf("%v of %v: operands %x: %x, want %x", op, typ, operands, a, want)
	}
	if !past {
		return
	}
	before := string(memory)
	params["%tid.x"] = 1
	(&thread{t, map[string]uint64{}, params, memory}).run(ptx(typ), kernelName(typ, op))
	if string(memory) != before {
		t.Fatalf("%v of %v: a thread too many", op, typ)
	}
}

// TestPTXAssembles runs NVIDIA's assembler, if it is installed.
func TestPTXAssembles(t *testing.T) {
	ptxas := os.Getenv("HMCFS_PTXAS")
	if ptxas == "" {
		found, err := exec.LookPath("ptxas")
		if err != nil {
			t.Skip("ptxas is not installed; HMCFS_PTXAS names it where it is at no usual place")
		}
		ptxas = found
	}
	for _, typ := range combining {
		file := filepath.Join(t.TempDir(), "kernel.ptx")
		if err := os.WriteFile(file, []byte(ptx(typ)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, arch := range []string{"sm_75", "sm_90"} {
			out, err := exec.CommandContext(t.Context(), ptxas, "-arch="+arch, "-o", filepath.Join(t.TempDir(), "out"), file).CombinedOutput()
			if err != nil {
				t.Errorf("%v for %s: %v\n%s", typ, arch, err, out)
			}
		}
	}
}
