package plan

// ring has a rank own the slice of its number in the end: what it sends first
// is the slice of the rank before it, and the last one that it combines is its
// own.
func (b *builder) ring() {
	if b.task.Kind == AllGather {
		b.gatherOwn()
		b.gatherRing()
		return
	}
	s := b.reduction()
	s.turns(2)
	left, right := b.at(b.pos-1), b.at(b.pos+1)
	for i := range b.n - 1 {
		s.send(right, b.at(b.pos-1-i))
		s.combine(left, b.at(b.pos-2-i))
	}
	s.settle(b.rank)
	b.average(s.at[b.rank])
	if b.task.Kind == AllReduce {
		b.gatherRing()
	}
}

// gatherOwn puts what we give to an AllGather in its place.
func (b *builder) gatherOwn() {
	b.copyFrom(b.result(b.task.part(b.rank)), b.source(Range{Len: b.task.part(b.rank).Len}))
}

// gathered is where the slice of a rank has its place in the result of an
// AllGather or AllReduce.
func (b *builder) gathered(owner Rank) Block {
	if b.task.Kind == AllGather {
		return b.result(b.task.part(owner))
	}
	return b.result(b.task.slice(owner))
}

// gatherRing passes the slices around, each rank beginning with its own.
func (b *builder) gatherRing() {
	left, right := b.at(b.pos-1), b.at(b.pos+1)
	for i := range b.n - 1 {
		b.send(right, b.gathered(b.at(b.pos-i)))
		b.receive(left, b.gathered(b.at(b.pos-1-i)))
	}
}
