package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// generate writes both files with 1 MiB of data each and reads them.
func generate(t *testing.T, seed uint64) (dir string, npy, tensors []byte) {
	t.Helper()
	dir = t.TempDir()
	if err := run(dir, "1MiB", "1MiB", seed); err != nil {
		t.Fatal(err)
	}
	var files [2][]byte
	for i, name := range []string{npyName, safetensorsName} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[i] = data
	}
	return dir, files[0], files[1]
}

func TestNPY(t *testing.T) {
	kit.Check(t)
	_, data, _ := generate(t, 1)
	if !bytes.HasPrefix(data, []byte("\x93NUMPY\x01\x00")) {
		t.Fatalf("begins with %q", data[:8])
	}
	start := 10 + int(data[8]) + int(data[9])<<8
	if start%64 != 0 || data[start-1] != '\n' {
		t.Errorf("data begins at %d, after %q", start, data[start-1])
	}
	header := regexp.MustCompile(`^\{'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \} *\n$`)
	m := header.FindSubmatch(data[10:start])
	if m == nil {
		t.Fatalf("header %q", data[10:start])
	}
	elements := 1
	for _, dim := range m[1:] {
		n, err := strconv.Atoi(string(dim))
		if err != nil {
			t.Fatal(err)
		}
		elements *= n
	}
	if got := len(data) - start; got != 4*elements || got != 1<<20 {
		t.Fatalf("%d bytes for %d elements", got, elements)
	}
	checkSpread(t, "float32", float32sOf(data[start:]))
}

// float32sOf reads little-endian numbers.
func float32sOf(data []byte) []float64 {
	var out []float64
	for ; len(data) >= 4; data = data[4:] {
		out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
	}
	return out
}

// checkSpread fails unless the numbers are finite, within [-1, 1], and lie on
// both sides of 0.
func checkSpread(t *testing.T, what string, values []float64) {
	t.Helper()
	sum, below := 0.0, 0
	for i, v := range values {
		if math.IsNaN(v) || v < -1 || v > 1 {
			t.Fatalf("%s: element %d is %v", what, i, v)
		}
		if v < 0 {
			below++
		}
		sum += v
	}
	if mean := sum / float64(len(values)); math.Abs(mean) > 0.02 {
		t.Errorf("%s: mean %v", what, mean)
	}
	if share := float64(below) / float64(len(values)); share < 0.4 || share > 0.6 {
		t.Errorf("%s: %v of the elements are negative", what, share)
	}
}

// entry is one entry as a reader of the format expects it.
type entry struct {
	Dtype   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// parseSafetensors reads the file as the format's description says.
func parseSafetensors(t *testing.T, data []byte) (entries map[string]entry, body []byte) {
	t.Helper()
	length := binary.LittleEndian.Uint64(data)
	head := data[8 : 8+length]
	if head[0] != '{' || (8+length)%8 != 0 {
		t.Errorf("header begins with %q, data at %d", head[0], 8+length)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(head, &raw); err != nil {
		t.Fatal(err)
	}
	delete(raw, "__metadata__")
	entries = map[string]entry{}
	for name, text := range raw {
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		entries[name] = e
	}
	return entries, data[8+length:]
}

func TestSafetensors(t *testing.T) {
	kit.Check(t)
	_, _, data := generate(t, 1)
	entries, body := parseSafetensors(t, data)
	widths := map[string]int{"I64": 8, "F32": 4, "BF16": 2, "F16": 2, "U8": 1}
	types := map[string]bool{}
	var ranges [][2]int
	for name, e := range entries {
		types[e.Dtype] = true
		n := widths[e.Dtype]
		for _, dim := range e.Shape {
			n *= dim
		}
		if n == 0 || e.Offsets[1]-e.Offsets[0] != n {
			t.Errorf("%s: %v of %s in %v", name, e.Shape, e.Dtype, e.Offsets)
		}
		if e.Offsets[0]%8 != 0 {
			t.Errorf("%s begins at %d", name, e.Offsets[0])
		}
		ranges = append(ranges, e.Offsets)
	}
	if len(types) != len(widths) {
		t.Errorf("types %v", types)
	}
	// The format wants no gaps, no overlaps and nothing behind the last one.
	slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
	end := 0
	for _, r := range ranges {
		if r[0] != end {
			t.Errorf("a tensor begins at %d, the one before ends at %d", r[0], end)
		}
		end = r[1]
	}
	if end != len(body) || end < 1<<19 || end > 2<<20 {
		t.Errorf("tensors end at %d, the file at %d", end, len(body))
	}
}

func TestSafetensorsContent(t *testing.T) {
	kit.Check(t)
	_, _, data := generate(t, 1)
	entries, body := parseSafetensors(t, data)
	part := func(name string) []byte {
		e := entries[name]
		return body[e.Offsets[0]:e.Offsets[1]]
	}
	checkSpread(t, "F32", float32sOf(part("model.embed_tokens.weight")))

	var wide []byte // a bfloat16 is a float32 without its lower half
	for b := part("model.layers.2.mlp.weight"); len(b) >= 2; b = b[2:] {
		wide = append(wide, 0, 0, b[0], b[1])
	}
	checkSpread(t, "BF16", float32sOf(wide))

	var halves []float64
	for b := part("lm_head.weight"); len(b) >= 2; b = b[2:] {
		halves = append(halves, half(binary.LittleEndian.Uint16(b)))
	}
	checkSpread(t, "F16", halves)

	for b := part("prompt.token_ids"); len(b) >= 8; b = b[8:] {
		if id := binary.LittleEndian.Uint64(b); id >= 32000 {
			t.Fatalf("token number %d", id)
		}
	}
}

// half reads a normal number of 16 bits.
func half(bits uint16) float64 {
	v := math.Ldexp(1+float64(bits&0x3ff)/1024, int(bits>>10&0x1f)-15)
	if bits>>15 != 0 {
		return -v
	}
	return v
}

func TestSeed(t *testing.T) {
	kit.Check(t)
	_, npy1, tensors1 := generate(t, 7)
	_, npy2, tensors2 := generate(t, 7)
	_, npy3, tensors3 := generate(t, 8)
	if !bytes.Equal(npy1, npy2) || !bytes.Equal(tensors1, tensors2) {
		t.Error("one seed gives two contents")
	}
	if bytes.Equal(npy1, npy3) || bytes.Equal(tensors1, tensors3) {
		t.Error("two seeds give one content")
	}
}

func TestRunFails(t *testing.T) {
	kit.Check(t)
	if err := run(t.TempDir(), "many", "1MiB", 1); err == nil {
		t.Error("a size that is none is taken")
	}
	if err := run(filepath.Join(t.TempDir(), "none"), "1MiB", "1MiB", 1); err == nil {
		t.Error("a directory that is missing is taken")
	}
}

func TestNumPyReads(t *testing.T) {
	kit.Require(t, "numpy")
	dir, data, _ := generate(t, 1)
	script := `
import sys, numpy
a = numpy.load(sys.argv[1])
m = numpy.load(sys.argv[1], mmap_mode="r")
assert (a == m).all()
print(a.dtype, *a.shape, a[3, 5].tobytes().hex())`
	out, err := exec.Command(kit.Python(), "-c", script, filepath.Join(dir, npyName)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	start := len(data) - 1<<20
	at := start + 4*(3*1024+5)
	want := "float32 256 1024 " + hex(data[at:at+4]) + "\n"
	if string(out) != want {
		t.Errorf("NumPy says %q, want %q", out, want)
	}
}

// hex writes bytes as Python does.
func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var out []byte
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}
