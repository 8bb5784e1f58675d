package kit

import "encoding/binary"

// The content is SplitMix64 in counter mode: the word at position i is the
// mix of seed and i, so any offset is reached without what comes before it.
const (
	splitGamma = 0x9e3779b97f4a7c15
	splitMul1  = 0xbf58476d1ce4e5b9
	splitMul2  = 0x94d049bb133111eb
	wordSize   = 8
)

// Bytes returns the n bytes at offset off of the content that the seed names.
func Bytes(seed uint64, off int64, n int) []byte {
	p := make([]byte, n)
	FillAt(p, seed, off)
	return p
}

// FillAt fills p with the bytes at offset off of the content that the seed
// names. A byte depends on its offset in the whole file, so bytes that land
// in a wrong place, or are stale, are seen. The offset is not negative.
func FillAt(p []byte, seed uint64, off int64) {
	key := mix(seed + splitGamma)
	index := uint64(off) / wordSize
	if skip := int(uint64(off) % wordSize); skip != 0 {
		n := copyWord(p, word(key, index), skip)
		p, index = p[n:], index+1
	}
	for len(p) >= wordSize {
		binary.LittleEndian.PutUint64(p, word(key, index))
		p, index = p[wordSize:], index+1
	}
	copyWord(p, word(key, index), 0)
}

// DiffAt returns the index in p of the first byte that is not what FillAt
// puts there, or -1.
func DiffAt(p []byte, seed uint64, off int64) int {
	var want [4096]byte
	for done := 0; done < len(p); {
		part := p[done:min(done+len(want), len(p))]
		FillAt(want[:len(part)], seed, off+int64(done))
		if i := FirstDiff(part, want[:len(part)]); i >= 0 {
			return done + i
		}
		done += len(part)
	}
	return -1
}

// FirstDiff returns the first index at which a and b differ, or -1 if they
// are equal. If one is the beginning of the other, it is the length of the
// shorter one.
func FirstDiff(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+wordSize <= n &&
		binary.LittleEndian.Uint64(a[i:]) == binary.LittleEndian.Uint64(b[i:]) {
		i += wordSize
	}
	for ; i < n; i++ {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return n
	}
	return -1
}

// word is the content's word at an index.
func word(key, index uint64) uint64 { return mix(key + index*splitGamma) }

// mix is the finalizer of SplitMix64: a bijection in which every input bit
// moves every output bit.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * splitMul1
	z = (z ^ z>>27) * splitMul2
	return z ^ z>>31
}

// copyWord copies the bytes of w from the given one on into p and returns
// how many there were.
func copyWord(p []byte, w uint64, from int) int {
	var b [wordSize]byte
	binary.LittleEndian.PutUint64(b[:], w)
	return copy(p, b[from:])
}
