package plan

// pairwise has each pair of ranks exchange their data for each other.
func (b *builder) pairwise() {
	c := b.all
	switch b.task.Kind {
	case AllToAll:
		b.ownAmongAll()
		c.others(func(i int) {
			b.send(c.ranks[i], b.source(b.task.part(c.ranks[i])))
			from := c.at(2*c.me - i)
			b.receive(from, b.fromAmongAll(from))
		})
		return
	case AllReduce, ReduceScatter, Reduce:
		s := b.sums()
		c.scatterPairwise(s)
		b.averageAll(s.at[c.me])
		b.collect(s)
	case Broadcast:
		b.spread()
	case AllGather, Barrier:
	}
	b.gather(c.gatherPairwise)
}

// ordered is pairwise, except that each owner combines in the order of the ranks.
func (b *builder) ordered() {
	c := b.all
	s := b.sums()
	c.others(func(i int) { b.sendAll(c.ranks[i], s.at[i]) })
	s.inOrder(c.me)
	b.averageAll(s.at[c.me])
	b.collect(s)
	b.gather(c.gatherPairwise)
}

// inOrder combines our own slice in the order of the ranks. Terms commute: only which terms
// are combined first affects the result.
func (s *sums) inOrder(me int) {
	b, own := s.b, s.at[me][0]
	if b.n == 1 {
		s.settle(me)
		return
	}
	to := s.target(me)[0]
	switch b.rank {
	case 0, 1:
		b.combine(1-b.rank, to, own)
	default:
		sum := to
		if to == own {
			sum = b.take(own.Len)
		}
		b.receive(0, sum)
		for r := Rank(1); r < b.rank; r++ {
			b.combine(r, sum, sum)
		}
		if to == own {
			b.combineFrom(to, sum)
		} else {
			b.combineFrom(to, own)
		}
	}
	for r := max(b.rank+1, 2); r < Rank(b.n); r++ {
		b.combine(r, to, to)
	}
	s.at[me], s.mine[me] = pieces{to}, true
}

// scatterPairwise combines each slice at its owner, which receives it from all others.
func (c rankSet) scatterPairwise(s *sums) {
	c.others(func(i int) {
		c.b.sendAll(c.ranks[i], s.at[i])
		s.combine(c.at(2*c.me-i), c.me)
	})
	s.settle(c.me)
}

// gatherPairwise has each rank send its own slice to all others.
func (c rankSet) gatherPairwise(all []pieces) {
	c.others(func(i int) {
		c.b.sendAll(c.ranks[i], all[c.me])
		from := c.wrap(2*c.me - i)
		c.b.receiveAll(c.ranks[from], all[from])
	})
}

// collect sends the combined slices of a Reduce to the root.
func (b *builder) collect(s *sums) {
	t := b.task
	switch {
	case t.Kind != Reduce:
	case b.rank != t.Root:
		b.sendAll(t.Root, s.at[b.all.me])
	default:
		b.all.others(func(i int) { b.receiveAll(b.all.ranks[i], s.place[i]) })
	}
}

// spread has the root of a Broadcast send one slice to each of the others, which then
// exchange their slices.
func (b *builder) spread() {
	b.rootOwn()
	if b.n == 1 {
		return
	}
	c, root := b.all, b.task.Root
	first := c.place(root) + 1
	rest := make([]Rank, b.n-1)
	all := make([]pieces, b.n-1)
	for i := range rest {
		rest[i] = c.at(first + i)
		all[i] = pieces{b.result(b.task.cut(b.task.Count, i, b.n-1))}
	}
	if b.rank == root {
		for i, r := range rest {
			b.sendAll(r, all[i])
		}
		return
	}
	others := b.among(rest)
	b.receiveAll(root, all[others.me])
	others.gatherPairwise(all)
}
