package runner

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// put encodes a value as an element; floating point values are rounded to the nearest, ties
// to even. A value that the integer type cannot represent is an error.
func put(p []byte, t elem.Type, v float64) error {
	if t.Floating() {
		elem.PutFloat(t, p, v)
		return nil
	}
	bits := int(8 * t.Size())
	least, most := 0.0, math.Ldexp(1, bits)
	if isSigned(t) {
		least, most = -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)
	}
	if v != math.Trunc(v) || v < least || v >= most {
		return fmt.Errorf("%v is not a valid %s", v, t)
	}
	whole := uint64(v)
	if v < 0 {
		whole = uint64(int64(v))
	}
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], whole)
	copy(p, all[:t.Size()])
	return nil
}

func isSigned(t elem.Type) bool {
	return t == elem.Int8 || t == elem.Int16 || t == elem.Int32 || t == elem.Int64
}

// show formats an element for people.
func show(p []byte, t elem.Type) string {
	if t.Floating() {
		return strconv.FormatFloat(elem.GetFloat(t, p), 'g', -1, 64)
	}
	var all [8]byte
	copy(all[:], p)
	whole := binary.LittleEndian.Uint64(all[:])
	if !isSigned(t) {
		return strconv.FormatUint(whole, 10)
	}
	unused := 64 - 8*t.Size()
	return strconv.FormatInt(int64(whole<<unused)>>unused, 10)
}
