package arena

import "slices"

// maxWaste bounds the size of a spare slab used for a lease, as a multiple of the lease.
const maxWaste = 2

// spareFor returns the smallest spare slab with room for n pages. One that is more than
// maxWaste times as large is left to be returned to the device, unless anySize is set: a
// small lease would withhold all of it from other programs.
//
// +checklocks:a.mu
func (a *Arena) spareFor(n uint32, anySize bool) *slab {
	var best *slab
	for _, s := range a.spares {
		if s.pages.pages >= n && (best == nil || s.size < best.size) {
			best = s
		}
	}
	if best != nil && !anySize && uint64(best.pages.pages) > maxWaste*uint64(n) {
		return nil
	}
	return best
}

// unspare removes a slab from the spares, if it is one.
//
// +checklocks:a.mu
func (a *Arena) unspare(s *slab) {
	if s.spare {
		s.spare = false
		a.spares = slices.DeleteFunc(a.spares, func(other *slab) bool { return other == s })
	}
}

// longest returns the longest free run of all slabs, in pages.
//
// +checklocks:a.mu
func (a *Arena) longest() uint32 {
	n := a.slots.longest()
	for _, s := range a.spares {
		n = max(n, s.pages.pages)
	}
	return n
}
