package plan

import "slices"

// rankSet is a set of ranks, including our own, that do a part of a plan together, as a ring.
type rankSet struct {
	b     *builder
	ranks []Rank
	me    int
}

// among returns the rankSet of some ranks, which must include our own.
func (b *builder) among(ranks []Rank) rankSet {
	return rankSet{b, ranks, slices.Index(ranks, b.rank)}
}

// wrap returns an index of the rankSet, modulo its size.
func (c rankSet) wrap(i int) int { n := len(c.ranks); return (i%n + n) % n }

// at returns the rank at a position of the ring, modulo its size.
func (c rankSet) at(i int) Rank { return c.ranks[c.wrap(i)] }

// others calls do for the other ranks. Each rank begins with the next one in the ring, so
// that not all use the same peer at once.
func (c rankSet) others(do func(i int)) {
	for i := 1; i < len(c.ranks); i++ {
		do(c.wrap(c.me + i))
	}
}

// pieces is a list of blocks that are sent one after the other.
type pieces []Block

func (b *builder) sendAll(to Rank, all pieces) {
	for _, k := range all {
		b.send(to, k)
	}
}

func (b *builder) receiveAll(from Rank, all pieces) {
	for _, k := range all {
		b.receive(from, k)
	}
}

func (b *builder) averageAll(all pieces) {
	for _, k := range all {
		b.average(k)
	}
}

// sums holds a rank's values of the slices that a rankSet combines, indexed by the position
// of the rank that owns each slice in the end: where the present value is, and where the
// combined one goes. A slice without a place goes to scratch.
type sums struct {
	b     *builder
	at    []pieces
	place []pieces
	// mine reports which values we may overwrite.
	mine []bool
	// slots are scratch for slices without a place, used in turn; if there are none, each
	// such slice gets scratch of its own.
	slots []Block
	next  int
}

// turns makes slices without a place share n blocks of scratch.
func (s *sums) turns(n int) {
	longest, placeless := uint64(0), 0
	for i, at := range s.at {
		if s.place[i] == nil {
			longest = max(longest, at[0].Len)
			placeless++
		}
	}
	for range min(n, placeless) {
		s.slots = append(s.slots, s.b.take(longest))
	}
}

// target returns the place for the combined value of a slice.
func (s *sums) target(i int) pieces {
	switch {
	case s.mine[i]:
		return s.at[i]
	case s.place[i] != nil:
		return s.place[i]
	case len(s.slots) > 0:
		k := s.slots[s.next%len(s.slots)]
		s.next++
		k.Len = s.at[i][0].Len
		return pieces{k}
	}
	all := make(pieces, len(s.at[i]))
	for j, k := range s.at[i] {
		all[j] = s.b.take(k.Len)
	}
	return all
}

// combine adds a peer's value of slice i to ours.
func (s *sums) combine(from Rank, i int) {
	to := s.target(i)
	for j, k := range to {
		s.b.combine(from, k, s.at[i][j])
	}
	s.at[i], s.mine[i] = to, true
}

// settle copies a slice that was not combined to its place.
func (s *sums) settle(i int) {
	if s.mine[i] {
		return
	}
	to := s.target(i)
	for j, k := range to {
		s.b.copyFrom(k, s.at[i][j])
	}
	s.at[i], s.mine[i] = to, true
}

// sums returns the sums of a task that combines, for the rankSet of all ranks.
func (b *builder) sums() *sums {
	t := b.task
	s := &sums{b: b, at: make([]pieces, b.n), place: make([]pieces, b.n), mine: make([]bool, b.n)}
	for i, owner := range b.all.ranks {
		g := t.share(owner)
		s.at[i] = pieces{b.source(g)}
		switch {
		case t.Kind == AllReduce, t.Kind == Reduce && b.rank == t.Root:
			s.place[i] = pieces{b.result(g)}
		case t.Kind == ReduceScatter && owner == b.rank:
			s.place[i] = pieces{b.result(Range{Len: g.Len})}
		}
	}
	return s
}

// share returns the range of the whole that a rank owns: its part if the task has parts,
// otherwise a slice.
func (t *Task) share(owner Rank) Range {
	if t.Kind == ReduceScatter || t.Kind == AllGather {
		return t.part(owner)
	}
	return t.slice(owner)
}

// shares returns the place of each rank's share in our result.
func (b *builder) shares() []pieces {
	all := make([]pieces, b.n)
	for i, owner := range b.all.ranks {
		all[i] = pieces{b.result(b.task.share(owner))}
	}
	return all
}
