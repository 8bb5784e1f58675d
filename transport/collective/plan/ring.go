package plan

// ring has everybody's slice go around once to be combined, and once to be
// known.
func (b *builder) ring() {
	c := b.everybody()
	if b.task.Kind != AllGather {
		s := b.sums()
		s.turns(2)
		c.scatterRing(s)
		b.averageAll(s.at[c.me])
	}
	b.gather(c.gatherRing)
}

// gather has all ranks get everybody's share, in the kinds that end so.
func (b *builder) gather(do func([]pieces)) {
	switch b.task.Kind {
	case AllGather:
		b.gatherOwn()
	case AllReduce:
	default:
		return
	}
	do(b.shares())
}

// gatherOwn puts what we give to an AllGather in its place.
func (b *builder) gatherOwn() {
	own := b.task.part(b.rank)
	b.copyFrom(b.result(own), b.source(Range{Len: own.Len}))
}

// scatterRing combines each slice for its owner: what a rank sends first is the
// slice of the one before it, and the last one that it combines is its own.
func (c crowd) scatterRing(s *sums) {
	left, right := c.at(c.me-1), c.at(c.me+1)
	for i := range len(c.ranks) - 1 {
		c.b.sendAll(right, s.at[c.wrap(c.me-1-i)])
		s.combine(left, c.wrap(c.me-2-i))
	}
	s.settle(c.me)
}

// gatherRing passes the slices around, each rank beginning with its own.
func (c crowd) gatherRing(all []pieces) {
	left, right := c.at(c.me-1), c.at(c.me+1)
	for i := range len(c.ranks) - 1 {
		c.b.sendAll(right, all[c.wrap(c.me-i)])
		c.b.receiveAll(left, all[c.wrap(c.me-1-i)])
	}
}
