package arena

import "math/bits"

const wordBits = 64

// bitmap has one bit for each page, set if the page is taken.
type bitmap []uint64

// mask returns the bits [from, to) of a word, 0 <= from < to <= 64.
func mask(from, to uint32) uint64 {
	return (^uint64(0) << from) & (^uint64(0) >> (wordBits - to))
}

// each calls fn with the index of every word that [off, off+n) touches and the mask of the
// range in it, until fn returns false.
func (b bitmap) each(off, n uint32, fn func(word uint32, in uint64) bool) {
	for end := off + n; off < end; {
		word, from := off/wordBits, off%wordBits
		to := min(wordBits, from+(end-off))
		if !fn(word, mask(from, to)) {
			return
		}
		off += to - from
	}
}

func (b bitmap) set(off, n uint32) {
	b.each(off, n, func(word uint32, in uint64) bool { b[word] |= in; return true })
}

func (b bitmap) clear(off, n uint32) {
	b.each(off, n, func(word uint32, in uint64) bool { b[word] &^= in; return true })
}

// allSet reports whether every bit of the range is set.
func (b bitmap) allSet(off, n uint32) bool {
	all := true
	b.each(off, n, func(word uint32, in uint64) bool {
		all = b[word]&in == in
		return all
	})
	return all
}

// nextClear returns the first clear bit in [from, end), or end.
func (b bitmap) nextClear(from, end uint32) uint32 {
	return b.next(from, end, ^uint64(0))
}

// nextSet returns the first set bit in [from, end), or end.
func (b bitmap) nextSet(from, end uint32) uint32 {
	return b.next(from, end, 0)
}

// next returns the first bit in [from, end) that is set after XORing every word with flip,
// or end.
func (b bitmap) next(from, end uint32, flip uint64) uint32 {
	for from < end {
		word := (b[from/wordBits] ^ flip) >> (from % wordBits)
		if word != 0 {
			return min(end, from+uint32(bits.TrailingZeros64(word)))
		}
		from += wordBits - from%wordBits
	}
	return end
}
