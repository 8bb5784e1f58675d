package arena

// slots is the list of slabs, with a tournament tree of the longest free run that each
// offers. The first slab with room is chosen, so that leases gather in the low slots and
// the high slabs become free. It is not safe for concurrent use.
type slots struct {
	slabs  []*slab
	vacant []int
	// best is a binary heap: best[1] is the longest run of all, best[width+i] that of slot
	// i. width is a power of two.
	best  []uint32
	width int
}

func newSlots() *slots {
	return &slots{best: make([]uint32, 2), width: 1}
}

// longest returns the longest free run that the slabs offer, in pages.
func (s *slots) longest() uint32 { return s.best[1] }

// add puts a slab into a vacant slot and adds it to the tree.
func (s *slots) add(sl *slab) {
	if last := len(s.vacant) - 1; last >= 0 {
		sl.slot = s.vacant[last]
		s.vacant = s.vacant[:last]
		s.slabs[sl.slot] = sl
	} else {
		sl.slot = len(s.slabs)
		s.slabs = append(s.slabs, sl)
	}
	if sl.slot >= s.width {
		s.widen()
	}
	s.update(sl)
}

// remove removes a slab from its slot.
func (s *slots) remove(sl *slab) {
	s.set(sl.slot, 0)
	s.slabs[sl.slot] = nil
	s.vacant = append(s.vacant, sl.slot)
}

// update recomputes the slab's entry in the tree.
func (s *slots) update(sl *slab) { s.set(sl.slot, sl.offer()) }

// find returns the first slab with n free pages in a row, or nil.
func (s *slots) find(n uint32) *slab {
	if s.best[1] < n {
		return nil
	}
	node := 1
	for node < s.width {
		node *= 2
		if s.best[node] < n {
			node++
		}
	}
	return s.slabs[node-s.width]
}

func (s *slots) set(slot int, longest uint32) {
	node := s.width + slot
	s.best[node] = longest
	for node > 1 {
		node /= 2
		s.best[node] = max(s.best[2*node], s.best[2*node+1])
	}
}

func (s *slots) widen() {
	s.width *= 2
	s.best = make([]uint32, 2*s.width)
	for _, sl := range s.slabs {
		if sl != nil {
			s.best[s.width+sl.slot] = sl.offer()
		}
	}
	for node := s.width - 1; node > 0; node-- {
		s.best[node] = max(s.best[2*node], s.best[2*node+1])
	}
}
