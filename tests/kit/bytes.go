package kit

import "encoding/binary"

// The content is SplitMix64 in counter mode: the word at position i is a mix of seed and i, so
// any offset can be computed without the content before it.
const (
	splitGamma = 0x9e3779b97f4a7c15
	splitMul1  = 0xbf58476d1ce4e5b9
	splitMul2  = 0x94d049bb133111eb
	wordSize   = 8
	blockSize  = 4096
)

// Bytes returns n bytes, from offset off, of the content with the given seed.
func Bytes(seed uint64, off int64, n int) []byte {
	p := make([]byte, n)
	FillAt(p, seed, off)
	return p
}

// FillAt fills p with the bytes, from offset off, of the content with the given seed. A byte
// depends on its offset in the whole file, so bytes that are in a wrong place or stale are
// detected. The offset is not negative.
func FillAt(p []byte, seed uint64, off int64) {
	key := mix(seed + splitGamma)
	index, skip := uint64(off)/wordSize, int(uint64(off)%wordSize)
	var block [blockSize]byte
	for len(p) > 0 {
		n := min((skip+len(p)+wordSize-1)/wordSize*wordSize, blockSize)
		fillWords(block[:n], key, index)
		p = p[copy(p, block[skip:n]):]
		index, skip = index+uint64(n/wordSize), 0
	}
}

// DiffAt returns the index in p of the first byte that differs from the one that FillAt writes
// there, or -1.
func DiffAt(p []byte, seed uint64, off int64) int {
	var want [blockSize]byte
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

// FirstDiff returns the first index at which a and b differ, or -1 if they are equal. If one is
// a prefix of the other, it returns the length of the shorter one.
func FirstDiff(a, b []byte) int {
	n := min(len(a), len(b))
	var x, y [blockSize]byte
	for at := 0; at < n; {
		k := copy(x[:], a[at:n])
		copy(y[:], b[at:n])
		if i := firstDiff(x[:k], y[:k]); i < k {
			return at + i
		}
		at += k
	}
	if len(a) != len(b) {
		return n
	}
	return -1
}

// fillWords fills p, which consists of whole words, with the words from an index on.
//
// The race detector would check each byte written here, which took most of the time of many
// tests. That is unnecessary: p is a block of the caller's own, and the detector sees the
// caller copy between that and shared memory. The same applies to firstDiff.
//
//go:norace
func fillWords(p []byte, key, index uint64) {
	for ; len(p) >= wordSize; p, index = p[wordSize:], index+1 {
		binary.LittleEndian.PutUint64(p, word(key, index))
	}
}

// firstDiff returns the first index at which two slices of the same length differ, or their
// length.
//
//go:norace
func firstDiff(a, b []byte) int {
	i := 0
	for i+wordSize <= len(a) && binary.LittleEndian.Uint64(a[i:]) == binary.LittleEndian.Uint64(b[i:]) {
		i += wordSize
	}
	for i < len(a) && a[i] == b[i] {
		i++
	}
	return i
}

// word returns the content's word at an index.
func word(key, index uint64) uint64 { return mix(key + index*splitGamma) }

// mix is the finalizer of SplitMix64: a bijection in which every input bit affects every output
// bit.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * splitMul1
	z = (z ^ z>>27) * splitMul2
	return z ^ z>>31
}
