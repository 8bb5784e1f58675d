package runner

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
)

func TestValues(t *testing.T) {
	for _, c := range []struct {
		t    elem.Type
		v    float64
		want string // empty means that the value is an error
	}{
		{elem.Int8, -128, "-128"},
		{elem.Int8, 127, "127"},
		{elem.Int8, 128, ""},
		{elem.Int8, -129, ""},
		{elem.Int8, 0.5, ""},
		{elem.Uint8, 255, "255"},
		{elem.Uint8, 256, ""},
		{elem.Uint8, -1, ""},
		{elem.Int16, -32768, "-32768"},
		{elem.Uint16, 65535, "65535"},
		{elem.Int32, -2147483648, "-2147483648"},
		{elem.Int32, 2147483648, ""},
		{elem.Uint32, 4294967295, "4294967295"},
		{elem.Int64, -9223372036854775808, "-9223372036854775808"},
		{elem.Int64, 9223372036854775808, ""},
		{elem.Uint64, 9223372036854775808, "9223372036854775808"},
		{elem.Uint64, 18446744073709551616, ""},
		{elem.Uint64, math.NaN(), ""},
		{elem.Float64, 0.1, "0.1"},
		{elem.Float32, 16777217, "1.6777216e+07"},
		{elem.Float16, 1e9, "+Inf"},
		{elem.BFloat16, -1.5, "-1.5"},
		{elem.Float32, math.Inf(-1), "-Inf"},
	} {
		p := make([]byte, c.t.Size())
		err := put(p, c.t, c.v)
		if (err != nil) != (c.want == "") || err == nil && show(p, c.t) != c.want {
			t.Errorf("%v as %s: %s, %v; want %q", c.v, c.t, show(p, c.t), err, c.want)
		}
	}
}

// TestSame checks when an element counts as equal to the expected one.
func TestSame(t *testing.T) {
	p := &Plan{Atol: 1e-5, Rtol: 1e-5}
	for _, c := range []struct {
		got, want float64
		same      bool
	}{
		{1, 1, true},
		{1.00001, 1, true},
		{1.00003, 1, false},
		{1e6, 1000009, true},
		{1e6, 1000011, false},
		{0, 1e-5, true},
		{math.Inf(1), math.Inf(1), true},
		{math.Inf(1), math.Inf(-1), false},
		{math.MaxFloat64, math.Inf(1), false},
		{math.NaN(), math.NaN(), false},
		{0, math.NaN(), false},
		{math.NaN(), 0, false},
	} {
		var got, want [8]byte
		binary.LittleEndian.PutUint64(got[:], math.Float64bits(c.got))
		binary.LittleEndian.PutUint64(want[:], math.Float64bits(c.want))
		if p.same(&Buffer{kind: elem.Float64}, got[:], want[:]) != c.same {
			t.Errorf("%v for %v: not %t", c.got, c.want, c.same)
		}
	}
	// Integers have no tolerance.
	// Every byte of an integer counts.
	for at := range 4 {
		want := []byte{0x40, 0x42, 0x0f, 0}
		got := slices.Clone(want)
		got[at] ^= 1
		if p.same(&Buffer{kind: elem.Int32}, got, want) {
			t.Errorf("byte %d of an integer does not count", at)
		}
	}
	// The tolerance depends on the expected value, not on the actual one.
	wide := &Plan{Rtol: 0.5}
	number := func(v float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)) }
	for _, c := range []struct {
		got, want float64
		same      bool
	}{{1.5, 1, true}, {1.9, 1, false}, {0.5, 1, true}, {1, 1.9, true}} {
		if wide.same(&Buffer{kind: elem.Float64}, number(c.got), number(c.want)) != c.same {
			t.Errorf("%v for %v by half: not %t", c.got, c.want, c.same)
		}
	}
	if p.same(&Buffer{kind: elem.Int32}, []byte{0x40, 0x42, 0x0f, 0}, []byte{0x41, 0x42, 0x0f, 0}) {
		t.Error("1000000 is taken for 1000001")
	}
}

func TestFormulas(t *testing.T) {
	for text, want := range map[string]float64{
		"i": 5, "i + 100*rank": 205, "-i*-2": 10, "(i+1)*2 - 3": 9, "nranks*i + 100*nranks*(nranks-1)/2": 620, "i % 3": 2,
		"1.5e2": 150, "0x10": math.NaN(), "i/0": math.Inf(1), "root": 1, "+i": 5, "nranks-rank-root": 1,
	} {
		f, err := parseFormula(text)
		if math.IsNaN(want) {
			if err == nil {
				t.Errorf("%q is taken", text)
			}
			continue
		}
		if err != nil || f(&[4]float64{5, 2, 4, 1}) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "i;", "j", "f(i)", "i.x", "i[0]", "!i", "i<2", `"i"`, "func(){}", "'a'", "i**2", "1i"} {
		if _, err := parseFormula(text); err == nil || !strings.Contains(err.Error(), "formula") {
			t.Errorf("%q is taken: %v", text, err)
		}
	}
}

func FuzzFormula(f *testing.F) {
	for _, text := range []string{"i + 100*rank", "(i", "-i%-3", "((((1))))", "i/"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		if g, err := parseFormula(text); err == nil {
			g(&[4]float64{1, 2, 3, 4})
		}
	})
}

// TestFaultsOfConfigs checks that all faults are reported at once, each with its name.
func TestFaultsOfConfigs(t *testing.T) {
	buffer := func(b Buffer) *Config { return &Config{Buffers: []Buffer{b}} }
	for want, c := range map[string]*Config{
		"nranks 0: use 1 to 64":                               {Ranks: new(int)},
		"nranks 65: use 1 to 64":                              {Ranks: new(65)},
		"root 8: use 0 to 7, there are 8 ranks":               {Root: 8},
		"root -1: use 0 to 7, there are 8 ranks":              {Root: -1},
		`timeout "soon": use a duration such as 60s`:          {Timeout: "soon"},
		`window: size "3q"`:                                   {Window: "3q"},
		`verify "some": use root or all`:                      {Verify: "some"},
		"atol -1, rtol 1e-05: use 0 or more":                  {Atol: new(-1.0)},
		`env "A=B": not the name of a variable`:               {Env: map[string]string{"A=B": "c"}},
		`buffer "a-b": a name consists of letters`:            buffer(Buffer{Name: "a-b", DType: "int8", Count: 1}),
		`buffer "root": a name consists of letters`:           buffer(Buffer{Name: "root", DType: "int8", Count: 1}),
		`buffer "x": dtype "f33": use one of`:                 buffer(Buffer{Name: "x", DType: "f33", Count: 1}),
		`buffer "x": a count of 0`:                            buffer(Buffer{Name: "x", DType: "int8"}),
		`buffer "x": a count of 18446744073709551615`:         buffer(Buffer{Name: "x", DType: "int64", Count: math.MaxUint64}),
		"the limit is 1.0 TiB":                                {WinSyncPrefix: math.MaxUint64},
		`outputs: there is no buffer "x"`:                     {Outputs: []string{"x"}},
		"golden: there are no outputs to compare":             {Golden: &Source{Values: map[string]string{}}},
		"generate: use one of command, files and values":      {Generate: &Source{}},
		`args: "x" is neither a buffer nor nranks, root or d`: {Args: []string{"x"}},
	} {
		_, err := NewPlan(Options{Program: []string{"true"}}, c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	_, err := NewPlan(Options{Program: []string{"true"}, Window: 15}, &Config{Buffers: []Buffer{{Name: "x", DType: "int64", Count: 2, Placement: "window"}}})
	if err == nil || !strings.Contains(err.Error(), "need 16 bytes, but the window has 15") {
		t.Error(err)
	}
	if _, err = NewPlan(Options{Program: []string{"true"}, Timeout: -time.Second}, nil); err == nil {
		t.Error("a negative timeout is taken")
	}
}

// TestLayout: buffers follow the prefix, in their order, without gaps.
func TestLayout(t *testing.T) {
	p, err := NewPlan(Options{Program: []string{"true"}}, &Config{WinSyncPrefix: 256, Buffers: []Buffer{
		{Name: "a", DType: "uint8", Count: 3, Placement: "window"},
		{Name: "b", DType: "float64", Count: 2, Placement: "device"},
		{Name: "c", DType: "float64", Count: 2, Placement: "window"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if p.buffer("a").off != 256 || p.buffer("b").off != 0 || p.buffer("c").off != 259 || p.Window != 275 || p.stride() != 2<<20 {
		t.Errorf("%+v", p)
	}
}
