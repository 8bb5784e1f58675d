package tensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// safe returns a safetensors file of a header and n bytes of data.
func safe(header string, n int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, n)...)
}

// array returns a .npy file of a literal.
func array(version byte, literal string, n int) []byte {
	out := append([]byte(npyMagic), version, 0)
	if version == 1 {
		out = binary.LittleEndian.AppendUint16(out, uint16(len(literal)))
	} else {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(literal)))
	}
	return append(append(out, literal...), make([]byte, n)...)
}

func parse(name string, file []byte) (*File, error) {
	return Parse(name, bytes.NewReader(file), uint64(len(file)))
}

func TestSafetensors(t *testing.T) {
	const header = `{"__metadata__":{"a":"\u00e4\ud83d\ude00","b":"x"},"h/1/w":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},` +
		`"b":{"data_offsets":[0,4],"shape":[],"dtype":"F32","more":[1,{"x":null}]},"e":{"dtype":"I64","shape":[0,7],"data_offsets":[16,16]},` +
		`"h/\u00e9":{"dtype":"F4","shape":[3,4],"data_offsets":[16,22]}}   `
	f, err := parse("m.safetensors", safe(header, 22))
	if err != nil {
		t.Fatal(err)
	}
	data := uint64(8 + len(header))
	var got []string
	for _, x := range f.Tensors {
		got = append(got, fmt.Sprint(x.Path, " ", x.Type.Name, " ", x.ShapeText(), " ", x.Off-data, " ", x.Len))
	}
	want := "b.npy float32  0 4|h/1/w.npy bfloat16 2,3 4 12|e.npy int64 0,7 16 0|h/é.npy float4_e2m1fn 3,4 16 6"
	if strings.Join(got, "|") != want {
		t.Errorf("tensors\n%s\nwant\n%s", strings.Join(got, "|"), want)
	}
	for path, want := range map[string]string{"": "b.npy e.npy h", "h": "1 é.npy", "h/1": "w.npy", "nothing": ""} {
		var names []string
		for _, e := range f.List(path) {
			names = append(names, e.Name)
			if found, ok := f.Find(strings.TrimPrefix(path+"/"+e.Name, "/")); !ok || found != e {
				t.Errorf("%s of %q is not found", e.Name, path)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q lists %q, want %q", path, got, want)
		}
	}
	if _, ok := f.Find("h/2"); ok {
		t.Error("what is not there is found")
	}
}

// TestRefused checks that each error names the tensor and the cause.
func TestRefused(t *testing.T) {
	one := func(name, dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}}`, name, dtype, shape, offsets)
	}
	two := func(a, b string) string { return a[:len(a)-1] + "," + b[1:] }
	u8 := func(name, offsets, shape string) string { return one(name, "U8", shape, offsets) }
	long := strings.Repeat("n", 252)
	for _, tc := range []struct {
		header, want string
		n            int
	}{
		{`{}`, "last 1 bytes", 1},
		{``, "unexpected end", 0},
		{` {}`, "expected '{'", 0},
		{`{} x`, "after the closing", 0},
		{"{}\x00", "after the closing", 0},
		{`{"a":`, "unexpected end", 0},
		{`{"a" {}}`, "expected ':'", 0},
		{`{"__metadata__":{"a":1}}`, `expected '"'`, 0},
		{u8("a", "[0,4]", "[5]"), `"a": shape 5 of type uint8 has 5 bytes, but its data has 4`, 4},
		{u8("a", "[0,4]", "[-4]"), `"a": .*negative`, 4},
		{u8("a", "[0,4]", "[4.0]"), `"a": .*not an integer`, 4},
		{u8("a", "[0,4]", "[04]"), `"a": .*leading zero`, 4},
		{u8("a", "[0,4]", "4"), `"a": .*expected '\['`, 4},
		{u8("a", "[0,4,5]", "[4]"), `"a": .*more than 2`, 4},
		{u8("a", "[4]", "[4]"), `"a": .*not have two numbers`, 4},
		{u8("a", "[0,5]", "[5]"), `"a": .*end at 5, beyond the 4`, 4},
		{u8("a", "[4,0]", "[4]"), `"a": .*end at 0, before`, 4},
		{u8("a", "[1,4]", "[3]"), `"a": the bytes from 0 to 1 before it belong to no tensor`, 4},
		{u8("a", "[0,3]", "[3]"), "last 1 bytes", 4},
		{u8("a", "[0,9223372036854775808]", "[3]"), "beyond 2^63", 4},
		{one("a", "F64", "[4294967296,4294967296,4294967296]", "[0,4]"), `"a": .*more than 2\^63`, 4},
		{one("a", "F64", "[9223372036854775807,2]", "[0,4]"), `"a": .*more than 2\^63`, 4},
		{one("a", "F4", "[3]", "[0,2]"), `"a": .*not a whole number of bytes`, 2},
		{one("a", "F33", "[3]", "[0,2]"), `"a": .*unknown type "F33"`, 2},
		{`{"a":{"dtype":"U8","shape":[1]}}`, `"a": .*missing`, 1},
		{`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, `"a": .*repeated field dtype`, 1},
		{two(u8("a", "[0,4]", "[4]"), u8("b", "[2,6]", "[4]")), `"b": its bytes at 2 overlap`, 6},
		{two(u8("a", "[0,4]", "[4]"), u8("a", "[4,6]", "[2]")), `"a": another tensor or a directory`, 6},
		{two(u8("a", "[0,4]", "[4]"), u8("a.npy/x", "[4,6]", "[2]")), `"a": another tensor or a directory`, 6},
		{u8("../a", "[0,1]", "[1]"), `"../a": its name has the component \.\.`, 1},
		{u8("a/./b", "[0,1]", "[1]"), `"a/./b": its name has the component \.`, 1},
		{u8("/etc/passwd", "[0,1]", "[1]"), `"/etc/passwd": its name is an absolute`, 1},
		{u8("a//b", "[0,1]", "[1]"), `"a//b": its name has an empty component`, 1},
		{u8("a/", "[0,1]", "[1]"), "empty component", 1},
		{u8("", "[0,1]", "[1]"), "empty component", 1},
		{u8(`a\u0000b`, "[0,1]", "[1]"), "zero byte", 1},
		{u8(long, "[0,1]", "[1]"), "too long for a file", 1},
		{u8(strings.Repeat("n/", 2046)+"n", "[0,1]", "[1]"), "too long for a path", 1},
		{u8(strings.Repeat("n/", 3000)+"n", "[0,1]", "[1]"), "longer than 4095", 1},
		{u8("\xff", "[0,1]", "[1]"), "not valid UTF-8", 1},
		{u8(`\ud800`, "[0,1]", "[1]"), "surrogate", 1},
		{u8(`\x`, "[0,1]", "[1]"), "unknown escape", 1},
		{u8("a\n", "[0,1]", "[1]"), "control character", 1},
		{`{"a":{"x":` + strings.Repeat("[", 100) + `}}`, "too deep", 1},
		{u8("a", "[0,1]", "["+strings.Repeat("1,", 64)+"1]"), "more than 64", 1},
	} {
		_, err := parse("x.safetensors", safe(tc.header, tc.n))
		refused(t, tc.header, err, tc.want)
	}
}

// refused expects an error whose text has the parts of want, separated by ".*", in order.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if !errors.Is(err, ErrFormat) {
		t.Errorf("%.200s: %v, want ErrFormat", what, err)
		return
	}
	text := err.Error()
	for part := range strings.SplitSeq(want, ".*") {
		part = strings.NewReplacer(`\[`, "[", `\.`, ".", `\^`, "^").Replace(part)
		_, rest, found := strings.Cut(text, part)
		if !found {
			t.Errorf("%.200s:\n%v\nwant %q in it", what, err, want)
			return
		}
		text = rest
	}
}

// TestLongHeaders expects lengths to be refused before anything of that length is read or kept.
func TestLongHeaders(t *testing.T) {
	for _, n := range []uint64{MaxHeader + 1, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1, 100} {
		file := append(binary.LittleEndian.AppendUint64(nil, n), "{}"...)
		r := &counted{Reader: bytes.NewReader(file)}
		for _, size := range []uint64{uint64(len(file)), 1<<63 - 1} {
			if n == 100 && size != uint64(len(file)) {
				continue
			}
			if _, err := Parse("x.safetensors", r, size); !errors.Is(err, ErrFormat) && n <= size-8 && n <= MaxHeader {
				t.Errorf("a header of %d bytes in %d: %v", n, size, err)
			}
		}
		if n > MaxHeader && r.n > 16 {
			t.Errorf("%d bytes were read of a header of %d", r.n, n)
		}
	}
	npy := array(2, "", 0)
	binary.LittleEndian.PutUint32(npy[8:], MaxHeader+1)
	_, err := Parse("x.npy", bytes.NewReader(npy), 1<<40)
	refused(t, "long .npy header", err, "the maximum is")
}

// counted counts the bytes that are read.
type counted struct {
	*bytes.Reader
	n int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.Reader.ReadAt(p, off)
	c.n += n
	return n, err
}

func TestNPY(t *testing.T) {
	for _, tc := range []struct {
		version        byte
		literal        string
		n              int
		dtype, shape   string
		fortran, exact bool
	}{
		{1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n", 48, "float32", "3,4", false, true},
		{2, `{"shape":(),"descr":"|b1","fortran_order":True}`, 1, "bool", "", true, true},
		{3, "{'descr':'>f8','shape':(2,),'fortran_order':False}", 17, ">f8", "2", false, false},
		{1, "{'descr': u'|S10', 'fortran_order': False, 'shape': (3L, 0L)}", 0, "|S10", "3,0", false, true},
		{1, "{'descr': '<M8[25s]', 'fortran_order': False, 'shape': (1,)}", 8, "<M8[25s]", "1", false, true},
		{1, "{'descr': 'f2', 'fortran_order': False, 'shape': (1,)}", 2, "float16", "1", false, true},
	} {
		file := array(tc.version, tc.literal, tc.n)
		f, err := parse("x.npy", file)
		if err != nil {
			t.Errorf("%s: %v", tc.literal, err)
			continue
		}
		x := f.Tensors[0]
		if x.Path != "x.npy" || x.Type.Name != tc.dtype || x.ShapeText() != tc.shape || x.Fortran != tc.fortran {
			t.Errorf("%s: %+v", tc.literal, x)
		}
		one, ok, err := ParseSingle("x.npy", bytes.NewReader(file), uint64(len(file)))
		if err != nil || ok != tc.exact || !one.Equal(&x) {
			t.Errorf("%s: single %v %v %+v", tc.literal, ok, err, one)
		}
	}
}

func TestNPYRefused(t *testing.T) {
	for literal, want := range map[string]string{
		"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}":            "structured",
		"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}":                      "objects",
		"{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}":                     "not one of NumPy's",
		"{'descr': '<f04', 'fortran_order': False, 'shape': (1,)}":                    "not one of NumPy's",
		"{'descr': '<M8[xs]', 'fortran_order': False, 'shape': (1,)}":                 "not one of NumPy's",
		"{'descr': '', 'fortran_order': False, 'shape': (1,)}":                        "empty",
		"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}":                     "neither True nor False",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}":                    "negative",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (99,)}":                    "does not fit a file of",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1<<3,)}":                  "expected",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}":                      "expected a tuple",
		"{'descr': '<f4', 'fortran_order': False}":                                    "missing",
		"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}":                             "repeated key",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}":             "unexpected or repeated key",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + x":                 "after the closing",
		"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}":                      "expected",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296,4294967296,)}": "2^63",
		"__import__('os')": "expected",
		"":                 "unexpected end",
	} {
		_, err := parse("x.npy", array(1, literal, 4))
		refused(t, literal, err, want)
	}
	long := "{'descr': '<f4', 'fortran_order': False, 'shape': (1L,)}"
	_, err := parse("x.npy", array(3, long, 4))
	refused(t, long, err, "expected")
	for _, version := range []byte{1, 2} {
		if _, err := parse("x.npy", array(version, long, 4)); err != nil {
			t.Errorf("version %d: %s: %v", version, long, err)
		}
	}
	for name, file := range map[string][]byte{
		"nothing": nil, "short": []byte(npyMagic), "magic": make([]byte, 100),
		"version": array(4, "{}", 0), "cut": array(2, "{}", 0)[:11], "header": array(1, "{}", 0)[:10],
	} {
		if _, err := parse("x.npy", file); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReaderFails expects an error of the reader to be returned unchanged.
func TestReaderFails(t *testing.T) {
	for _, file := range []struct {
		name string
		data []byte
	}{
		{"x.npy", array(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4)},
		{"x.safetensors", safe(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)},
	} {
		for after := range 3 {
			r := &failing{Reader: bytes.NewReader(file.data), after: after}
			_, err := Parse(file.name, r, uint64(len(file.data)))
			if r.failed && (!errors.Is(err, errBroken) || errors.Is(err, ErrFormat)) {
				t.Errorf("%s, read %d fails: %v", file.name, after, err)
			}
		}
	}
}

var errBroken = errors.New("broken")

type failing struct {
	*bytes.Reader
	after  int
	failed bool
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.after--; f.after < 0 {
		f.failed = true
		return 0, errBroken
	}
	return f.Reader.ReadAt(p, off)
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"a.npy.tensors": "a.npy", "a.safetensors.tensors": "a.safetensors", "a.tensors": "", ".npy.tensors": "",
		"a.npy": "", ".tensors": "", "a.NPY.tensors": "",
	} {
		file, ok := FileOf(name)
		if ok != (want != "") || ok && file != want {
			t.Errorf("FileOf(%q) = %q, %v", name, file, ok)
		}
	}
}

func TestTypeNamed(t *testing.T) {
	for name, want := range map[string]uint64{
		"float32": 32, "F32": 32, "bf16": 16, "BFloat16": 16, "f8_e4m3": 8, "float8_e5m2": 8, "c128": 128, "complex128": 128,
		">f4": 32, "|S10": 80, "f4": 4, "float6_e2m3fn": 6, "float33": 0, "": 0, "<O8": 0,
	} {
		got, ok := TypeNamed(name)
		if ok != (want != 0) || got.Bits != want {
			t.Errorf("TypeNamed(%q) = %+v, %v", name, got, ok)
		}
	}
}

// TestManyEntries expects a header with too many directories to be refused.
func TestManyEntries(t *testing.T) {
	var header strings.Builder
	header.WriteByte('{')
	for i := range 400 {
		if i > 0 {
			header.WriteByte(',')
		}
		fmt.Fprintf(&header, `"%d%s/x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i, strings.Repeat("/d", 1500))
	}
	header.WriteByte('}')
	_, err := parse("x.safetensors", safe(header.String(), 0))
	refused(t, "600000 directories", err, "more than 500000")
}
