package badgerkv

// hashes is a map from the hashes of keys, which are random already and need not be hashed again. A
// value is never the zero one, which stands for none. The zero map is empty and ready for use.
type hashes[V comparable] struct {
	// slots has the entries, each at its hash or in the next free slot behind. Their number is zero
	// or a power of two.
	slots []hashed[V]
	used  int
}

type hashed[V comparable] struct {
	hash  uint64
	value V
}

// leastSlots is the number of slots of the smallest map.
const leastSlots = 32

// newHashes returns a map with room for a number of values.
func newHashes[V comparable](room int) hashes[V] {
	if room == 0 {
		return hashes[V]{}
	}
	n := leastSlots
	for !fits(room, n) {
		n *= 2
	}
	return hashes[V]{slots: make([]hashed[V], n)}
}

// fits reports whether enough slots are free for short searches.
func fits(used, slots int) bool { return used <= slots/3*2 }

// get returns the value of a hash.
func (h *hashes[V]) get(hash uint64) (value V) {
	if h.used == 0 {
		return value
	}
	return h.find(hash).value
}

// at returns the place of the value of a hash, which the caller sets. It is valid until the next call.
func (h *hashes[V]) at(hash uint64) *V {
	if !fits(h.used+1, len(h.slots)) {
		h.grow()
	}
	var none V
	s := h.find(hash)
	if s.value == none {
		s.hash = hash
		h.used++
	}
	return &s.value
}

// find returns the slot of a hash, or the free one where it would be.
func (h *hashes[V]) find(hash uint64) *hashed[V] {
	var none V
	mask := uint64(len(h.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if s := &h.slots[i]; s.hash == hash || s.value == none {
			return s
		}
	}
}

func (h *hashes[V]) grow() {
	var none V
	old := h.slots
	h.slots = make([]hashed[V], max(leastSlots, 2*len(old)))
	for i := range old {
		if old[i].value != none {
			*h.find(old[i].hash) = old[i]
		}
	}
}

// clear removes all values, and keeps the memory.
func (h *hashes[V]) clear() {
	if h.used > 0 {
		clear(h.slots)
		h.used = 0
	}
}
