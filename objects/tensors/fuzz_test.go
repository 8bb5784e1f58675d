package tensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzSafetensors compares the parser with the standard library's JSON parser, and its result
// with the format.
func FuzzSafetensors(f *testing.F) {
	for _, header := range []string{
		`{}`, `{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}`,
		`{"__metadata__":{"a":"\ud83d\ude00"},"h/1":{"dtype":"BF16","shape":[],"data_offsets":[0,2],"x":[1e3,null,{"y":true}]}}  `,
		`{"a":{"dtype":"U8","shape":[3],"data_offsets":[5,8]},"b/c":{"dtype":"F4","shape":[2,5],"data_offsets":[0,5]}}`,
		`{"../a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`, `{"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`,
	} {
		f.Add(safe(header, 8))
		f.Add(safe(header, 2))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parse("x.safetensors", data)
		one, ok, failure := ParseSingle("x.safetensors", bytes.NewReader(data), uint64(len(data)))
		if err != nil {
			if !errors.Is(err, ErrFormat) || failure != nil && !errors.Is(failure, ErrFormat) {
				t.Fatalf("%v, %v", err, failure)
			}
			return
		}
		if failure != nil || ok != (len(file.Tensors) == 1) || ok && !one.Equal(&file.Tensors[0]) {
			t.Fatalf("single: %v %v %+v of %d", ok, failure, one, len(file.Tensors))
		}
		checkFile(t, file, uint64(len(data)))
		n, err := safetensorsHeader(bytes.NewReader(data), uint64(len(data)))
		var all map[string]json.RawMessage
		if err != nil || json.Unmarshal(data[8:8+n], &all) != nil {
			t.Fatalf("accepted, but not by encoding/json: %q", data)
		}
		delete(all, "__metadata__")
		if len(all) != len(file.Tensors) {
			t.Fatalf("%d tensors, encoding/json has %d", len(file.Tensors), len(all))
		}
		for i := range file.Tensors {
			var told struct {
				Shape   []uint64
				Offsets [2]uint64 `json:"data_offsets"`
			}
			x := &file.Tensors[i]
			if err := json.Unmarshal(all[x.name()], &told); err != nil || x.Off != 8+n+told.Offsets[0] || x.Len != told.Offsets[1]-told.Offsets[0] {
				t.Fatalf("%+v, told %+v, %v", x, told, err)
			}
		}
	})
}

// FuzzNPY checks that every accepted array is within the file, and that its regenerated header
// describes the same.
func FuzzNPY(f *testing.F) {
	for _, literal := range []string{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }     \n", "{'descr':'|O','fortran_order':True,'shape':()}",
		`{"shape": (3L,), "descr": ">u2", "fortran_order": True}`, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
	} {
		for version := range byte(4) {
			f.Add(array(version, literal, 8))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parse("x.npy", data)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		checkFile(t, file, uint64(len(data)))
	})
}

// checkFile checks that an accepted file is consistent.
func checkFile(t *testing.T, f *File, size uint64) {
	t.Helper()
	end := uint64(0)
	for i := range f.Tensors {
		x := &f.Tensors[i]
		if x.Off < end || x.Off > size || x.Len > size-x.Off {
			t.Fatalf("%+v in a file of %d", x, size)
		}
		end = x.Off + x.Len
		for part := range strings.SplitSeq(x.Path, "/") {
			if part == "" || part == "." || part == ".." || len(part) > maxName || strings.Contains(part, "\x00") {
				t.Fatalf("path %q", x.Path)
			}
		}
		if e, ok := f.Find(x.Path); !ok || e.Tensor != x {
			t.Fatalf("%q is not in the tree", x.Path)
		}
		header := x.Header()
		again, err := parseNPY(bytes.NewReader(header), maxCount)
		if err != nil || len(header)%headerAlign != 0 || again.Off != uint64(len(header)) || again.Len != x.Len ||
			again.Type.Descr != x.Type.Descr || again.Fortran != x.Fortran {
			t.Fatalf("header %q: %+v, %v, of %+v", header, again, err, x)
		}
	}
}
