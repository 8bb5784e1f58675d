package tensors

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// seed chooses and logs the seed of a test.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64()
	t.Logf("seed %d", n)
	return n
}

// told is NumPy's answer about a file.
type told struct {
	File    string
	Error   string
	Descr   string
	Shape   []uint64
	Fortran bool
	Offset  uint64
	Bytes   uint64
}

// ask makes NumPy read all .npy files of a directory.
func ask(t *testing.T, dir, script string, args ...string) []told {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kit.Python(), append([]string{"-W", "error", "-c", script, dir}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it unwrapped
			t.Fatalf("%v\n%s", err, e.Stderr)
		}
		t.Fatal(err)
	}
	var all []told
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// lookAt reads each file's header as np.load does, and checks that it can be
// loaded and mapped.
const lookAt = `
import sys, os, json, numpy as np
out = []
for name in sorted(os.listdir(sys.argv[1])):
    path, row = os.path.join(sys.argv[1], name), {"File": name}
    try:
        a = np.load(path, allow_pickle=False)
        with open(path, "rb") as f:
            version = np.lib.format.read_magic(f)
            shape, fortran, dtype = np.lib.format._read_array_header(f, version)
            row["Offset"] = f.tell()
        assert a.shape == shape and a.dtype == dtype
        if a.size:
            m = np.load(path, mmap_mode="r"); assert m.tobytes() == a.tobytes()
        with open(path, "rb") as f: f.seek(row["Offset"]); assert f.read(a.nbytes) == a.tobytes("A")
        row.update(Descr=dtype.str, Shape=list(shape), Fortran=fortran, Bytes=a.nbytes)
    except Exception as e: row["Error"] = "%s: %s" % (type(e).__name__, e)
    out.append(row)
print(json.dumps(out))`

// TestNumPyReadsHeaders has NumPy open headers of random tensors of all types.
func TestNumPyReadsHeaders(t *testing.T) {
	kit.Require(t, "numpy")
	rng := rand.New(rand.NewPCG(seed(t), 1))
	dir := t.TempDir()
	want := map[string]*Tensor{}
	types := []Type{}
	for _, name := range slices.Sorted(maps.Keys(safetensorsTypes)) {
		types = append(types, safetensorsTypes[name])
	}
	for _, descr := range []string{">f4", "<M8[ns]", "|S3", "<U5", "|V7", ">c16", "<f16", "=i4", "u2"} {
		x, err := numpyType(descr)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, x)
	}
	for i := range 200 {
		x := &Tensor{Type: types[i%len(types)], Fortran: rng.IntN(2) == 0}
		for range rng.IntN(5) {
			x.Shape = append(x.Shape, rng.Uint64N(6)*4)
		}
		if i <= 32 { // as many dimensions as every NumPy version supports
			for len(x.Shape) < i {
				x.Shape = append(x.Shape, 1)
			}
		}
		var err error
		if x.Len, err = byteLen(x.Type, x.Shape); err != nil {
			continue // no whole bytes
		}
		name := fmt.Sprintf("%03d.npy", i)
		want[name] = x
		content := append(x.Header(), kit.Bytes(uint64(i), 0, int(x.Len))...)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, got := range ask(t, dir, lookAt) {
		x := want[got.File]
		descr := strings.NewReplacer("=", "<", "<V", "|V").Replace(got.Descr)
		wanted := strings.NewReplacer("=", "<", "<V", "|V").Replace(x.Type.Descr)
		if wanted == "u2" {
			wanted = "<u2"
		}
		if got.Error != "" || descr != wanted || fmt.Sprint(got.Shape) != fmt.Sprint(x.packedShape()) ||
			got.Bytes != x.Len || got.Fortran != x.Fortran || got.Offset%headerAlign != 0 {
			t.Errorf("NumPy has %+v of %+v", got, x)
		}
	}
}

// writeArrays makes NumPy write random arrays in every version of the format.
const writeArrays = `
import sys, os, json, numpy as np
rng = np.random.default_rng(int(sys.argv[2])); out = []
dtypes = ["?", "i1", "u1", "<i2", ">i2", "<u2", "<f2", "<f4", ">f4", "<f8", "<c8", ">c16", "<i8", ">u8", "S7", "U3", "<M8[ns]", "<m8[25s]", "V3", "<f16"]
for i in range(200):
    shape = tuple(int(n) for n in rng.integers(0, 6, rng.integers(0, 6)))
    dtype = np.dtype(dtypes[i % len(dtypes)])
    a = np.zeros(shape, dtype=dtype, order="CF"[i % 2])
    name = "%03d.npy" % i
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        np.lib.format.write_array(f, a, version=[(1, 0), (2, 0), (3, 0), None][i % 4])
        offset = f.tell() - a.nbytes
    out.append({"File": name, "Descr": dtype.str, "Shape": list(shape), "Bytes": a.nbytes, "Offset": offset,
        "Fortran": bool(a.flags.f_contiguous and not a.flags.c_contiguous)})
print(json.dumps(out))`

// TestNumPyWritesFiles reads files written by NumPy.
func TestNumPyWritesFiles(t *testing.T) {
	kit.Require(t, "numpy")
	dir := t.TempDir()
	for _, want := range ask(t, dir, writeArrays, fmt.Sprint(seed(t))) {
		data, err := os.ReadFile(filepath.Join(dir, want.File))
		if err != nil {
			t.Fatal(err)
		}
		f, err := parse(want.File, data)
		if err != nil {
			t.Errorf("%+v: %v", want, err)
			continue
		}
		x := f.Tensors[0]
		if x.Type.Descr != want.Descr || fmt.Sprint(x.Shape) != fmt.Sprint(want.Shape) || x.Off != want.Offset || x.Len != want.Bytes ||
			x.Fortran != want.Fortran {
			t.Errorf("%+v of what NumPy wrote as %+v", x, want)
		}
	}
}

// TestNumPyAgrees changes bytes of headers: a header that is accepted here is accepted by NumPy
// too, with the same result.
func TestNumPyAgrees(t *testing.T) {
	kit.Require(t, "numpy")
	rng := rand.New(rand.NewPCG(seed(t), 2))
	dir := t.TempDir()
	mine := map[string]Tensor{}
	const letters = "{}()[],: '\"\\0123456789LfFtTuUbBiIcV<>|=-.e\n\x00\xff"
	for i := range 3_000 {
		data := array(byte(1+i%3), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }   \n", 64)
		for range 1 + rng.IntN(2) {
			data[10+rng.IntN(70)] = letters[rng.IntN(len(letters))]
		}
		f, err := parse("x.npy", data)
		if err != nil {
			continue
		}
		name := fmt.Sprintf("%05d.npy", i)
		mine[name] = f.Tensors[0]
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(mine) < 30 {
		t.Fatalf("%d headers were accepted: the test proves nothing", len(mine))
	}
	t.Logf("%d of 3000 headers were accepted", len(mine))
	for _, got := range ask(t, dir, lookAt) {
		x := mine[got.File]
		if got.Error != "" || fmt.Sprint(got.Shape) != fmt.Sprint(x.Shape) || got.Bytes != x.Len || got.Fortran != x.Fortran || got.Offset != x.Off {
			data, _ := os.ReadFile(filepath.Join(dir, got.File))
			t.Errorf("%q: NumPy has %+v, here it is %+v", data[:80], got, x)
		}
	}
}
