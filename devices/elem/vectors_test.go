package elem

import (
	"bytes"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// FuzzVectors compares the loops of this processor with the portable ones.
func FuzzVectors(f *testing.F) {
	types := []Type{Int8, Uint8, Int32, Int64, Float16, BFloat16, Float32, Float64}
	for i := range types {
		f.Add(byte(i), kit.Bytes(1, 0, 2048), uint64(i))
	}
	f.Add(byte(4), bytes.Repeat([]byte{0, 0x7c, 1, 0x80, 0xff, 0xfb, 0, 0x80, 0, 0}, 100), uint64(3))
	f.Add(byte(5), bytes.Repeat([]byte{0x80, 0x7f, 0x80, 0xff, 1, 0, 0x81, 0x7f}, 100), uint64(3))
	f.Fuzz(func(t *testing.T, kind byte, data []byte, by uint64) {
		typ := types[int(kind)%len(types)]
		n := len(data) / 2 &^ 7
		a, b := bytes.Clone(data[:n]), bytes.Clone(data[n:2*n])
		for op := Sum; op <= Max; op++ {
			got, want := make([]byte, n), make([]byte, n)
			if err := Combine(op, typ, got, a, b); err != nil {
				t.Fatal(err)
			}
			combinePortable(op, typ, want, a, b)
			if !bytes.Equal(got, want) {
				t.Fatalf("%v of %v differs at byte %d", op, typ, kit.FirstDiff(got, want))
			}
		}
		if by == 0 {
			return
		}
		got, want := bytes.Clone(a), bytes.Clone(a)
		if err := Divide(typ, got, by); err != nil {
			t.Fatal(err)
		}
		dividePortable(typ, want, by)
		if !bytes.Equal(got, want) {
			t.Fatalf("%v divided by %d differs at byte %d", typ, by, kit.FirstDiff(got, want))
		}
	})
}

// TestHalvesThereAndBack widens and narrows all values: only a NaN changes.
func TestHalvesThereAndBack(t *testing.T) {
	for _, typ := range []Type{Float16, BFloat16} {
		for h := range 1 << 16 {
			in, wide, out := []uint16{uint16(h)}, make([]float32, 1), make([]uint16, 1)
			widen(typ, wide, in)
			if wide[0] != wide[0] {
				continue
			}
			narrow(typ, out, wide)
			if out[0] != in[0] {
				t.Fatalf("%v: %04x comes back as %04x", typ, in[0], out[0])
			}
		}
	}
}
