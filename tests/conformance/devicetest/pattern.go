package devicetest

import (
	"encoding/binary"
	"fmt"
)

// Pattern fills p with the bytes [off, off+len(p)) of the endless sequence with the given seed.
// They look random and are the same on every machine.
func Pattern(p []byte, seed, off uint64) {
	for len(p) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], scramble(seed, off/8))
		n := copy(p, word[off%8:])
		p = p[n:]
		off += uint64(n)
	}
}

// Bytes returns the first n bytes of the sequence.
func Bytes(n int, seed uint64) []byte {
	p := make([]byte, n)
	Pattern(p, seed, 0)
	return p
}

// Compare returns an error with the first difference between got and want.
func Compare(got, want []byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes instead of %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %#02x instead of %#02x", i, len(got), got[i], want[i])
		}
	}
	return nil
}

// scramble returns splitmix64 of a seed and a position.
func scramble(seed, i uint64) uint64 {
	z := seed*0xd1342543de82ef95 + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Rand is a small deterministic source of random numbers for tests.
type Rand struct{ seed, n uint64 }

// NewRand returns the source with the given seed.
func NewRand(seed uint64) *Rand { return &Rand{seed: seed} }

// Below returns a number in [0, n); n must not be 0.
func (r *Rand) Below(n uint64) uint64 {
	r.n++
	return scramble(r.seed, r.n) % n
}
