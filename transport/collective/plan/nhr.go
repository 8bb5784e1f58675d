package plan

// nhr builds a plan by the non-uniform hierarchical ring.
func (b *builder) nhr() {
	c := b.all
	if b.task.Kind != AllGather {
		s := b.sums()
		c.scatterNHR(s)
		b.averageAll(s.at[c.me])
	}
	b.gather(c.gatherNHR)
}

// round calls do for each slice that a rank sends to the one 1<<s before it in round s,
// with the slice's distance before the receiver.
func (c rankSet) round(s int, do func(back int)) {
	for i := range (len(c.ranks) - 1 + 1<<s) >> (s + 1) {
		do(i << (s + 1))
	}
}

// scatterNHR combines each slice for its owner. In round s a rank passes on the slices of
// the ranks 1<<s, 3<<s, 5<<s, … before it: half of those it still has, whatever the number
// of ranks.
func (c rankSet) scatterNHR(s *sums) {
	for r := range rounds(len(c.ranks)) {
		to, from := c.me-1<<r, c.me+1<<r
		c.round(r, func(back int) {
			c.b.sendAll(c.at(to), s.at[c.wrap(to-back)])
			s.combine(c.at(from), c.wrap(c.me-back))
		})
	}
	s.settle(c.me)
}

// gatherNHR is scatterNHR in reverse.
func (c rankSet) gatherNHR(all []pieces) {
	for r := rounds(len(c.ranks)) - 1; r >= 0; r-- {
		from, to := c.me-1<<r, c.me+1<<r
		c.round(r, func(back int) {
			c.b.sendAll(c.at(to), all[c.wrap(c.me-back)])
			c.b.receiveAll(c.at(from), all[c.wrap(from-back)])
		})
	}
}
