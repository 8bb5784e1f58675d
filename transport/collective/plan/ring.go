package plan

// ring passes each rank's slice around once to be combined, and once to be distributed.
func (b *builder) ring() {
	c := b.all
	if b.task.Kind != AllGather {
		s := b.sums()
		s.turns(2)
		c.scatterRing(s)
		b.averageAll(s.at[c.me])
	}
	b.gather(c.gatherRing)
}

// gather distributes the share of each rank to all ranks, for the kinds that end that way.
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

// gatherOwn copies our source of an AllGather to its place in the result.
func (b *builder) gatherOwn() {
	own := b.task.part(b.rank)
	b.copyFrom(b.result(own), b.source(Range{Len: own.Len}))
}

// scatterRing combines each slice for its owner: a rank first sends the slice of the rank
// before it, and combines its own slice last.
func (c rankSet) scatterRing(s *sums) {
	left, right := c.at(c.me-1), c.at(c.me+1)
	for i := range len(c.ranks) - 1 {
		c.b.sendAll(right, s.at[c.wrap(c.me-1-i)])
		s.combine(left, c.wrap(c.me-2-i))
	}
	s.settle(c.me)
}

// gatherRing passes the slices around, each rank beginning with its own.
func (c rankSet) gatherRing(all []pieces) {
	left, right := c.at(c.me-1), c.at(c.me+1)
	for i := range len(c.ranks) - 1 {
		c.b.sendAll(right, all[c.wrap(c.me-i)])
		c.b.receiveAll(left, all[c.wrap(c.me-1-i)])
	}
}
