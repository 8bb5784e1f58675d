package plan

// Wait names an earlier step of a program for which a step waits.
type Wait struct {
	// Step is its index in the program.
	Step int
	// Follow reports that both steps have the same range wherever they overlap: the later
	// one may process an element as soon as the earlier one has.
	Follow bool
}

// Waits returns, for each step, the steps it must wait for by the first and the last rule
// of the package comment; the order on the links comes in addition. Waits that are implied
// by others are left out.
func (p Program) Waits() [][]Wait {
	all := make([][]Wait, len(p))
	// full[i] holds the steps that are complete before any element of step i; follow[i]
	// those of which each element comes before the same element of step i.
	full, follow := make([]set, len(p)), make([]set, len(p))
	for j := range p {
		full[j], follow[j] = newSet(len(p)), newSet(len(p))
		for i := j - 1; i >= 0; i-- {
			meet, same := p[j].overlaps(&p[i])
			if !meet || full[j].has(i) || same && follow[j].has(i) {
				continue
			}
			all[j] = append(all[j], Wait{Step: i, Follow: same})
			full[j].join(full[i])
			if same {
				follow[j].join(follow[i])
				follow[j].add(i)
				continue
			}
			full[j].add(i)
			full[j].join(follow[i])
		}
	}
	return all
}

// overlaps reports whether a step must come after an earlier one, and whether it may follow it
// element by element.
func (s *Step) overlaps(earlier *Step) (meet, same bool) {
	if s.Action == Sync || earlier.Action == Sync {
		return true, false
	}
	same = s.Block.Len == earlier.Block.Len
	for _, a := range s.touches() {
		for _, b := range earlier.touches() {
			if (a.write || b.write) && a.Overlaps(b.Block) {
				meet = true
				same = same && a.Block == b.Block
			}
		}
	}
	return meet, meet && same
}

// touch is a range of our own memory that a step reads or writes.
type touch struct {
	Block
	write bool
}

// touches returns what a step reads and writes of our own memory. Accesses of a Fold or a
// Fetch to other ranks' memory are ordered by Sync alone.
func (s *Step) touches() [2]touch {
	switch s.Action {
	case Send:
		return [2]touch{{Block: s.Block}}
	case Receive, DivideBy, Fetch:
		return [2]touch{{Block: s.Block, write: true}}
	default:
		return [2]touch{{Block: s.Block, write: true}, {Block: s.From}}
	}
}

// set is a set of small numbers.
type set []uint64

func newSet(n int) set       { return make(set, (n+63)/64) }
func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s set) join(o set) {
	for i := range o {
		s[i] |= o[i]
	}
}
