package plan

// direct has every rank read the elements it needs directly from the memory of the others.
// After the first Sync all sources are available; after the last one no rank accesses
// another's memory any more.
func (b *builder) direct() {
	b.sync()
	switch b.task.Kind {
	case AllReduce:
		k := b.task.slice(b.rank)
		b.fold(b.result(k), b.source(k), inOrder(b.n))
	case ReduceScatter:
		k := b.task.part(b.rank)
		b.fold(b.result(Range{Len: k.Len}), b.source(k), []Rank{b.rank})
	case Reduce:
		k := b.task.slice(b.rank)
		b.fold(b.resultOf(b.task.Root, k), b.source(k), []Rank{b.task.Root})
	case AllGather:
		b.gatherOwn()
		b.all.others(func(i int) {
			p := b.all.ranks[i]
			k := b.task.part(p)
			b.fetch(p, b.result(k), b.sourceOf(p, Range{Len: k.Len}))
		})
	case Broadcast:
		if b.rank == b.task.Root {
			b.copyFrom(b.result(b.whole()), b.source(b.whole()))
			break
		}
		b.fetch(b.task.Root, b.result(b.whole()), b.sourceOf(b.task.Root, b.whole()))
	case AllToAll:
		b.ownAmongAll()
		b.all.others(func(i int) {
			p := b.all.ranks[i]
			b.fetch(p, b.fromAmongAll(p), b.sourceOf(p, b.task.part(b.rank)))
		})
	case Barrier:
		return
	}
	b.sync()
}

// fromAmongAll returns the place of a rank's elements in the result of an AllToAll.
func (b *builder) fromAmongAll(p Rank) Block {
	n := b.task.part(b.rank).Len
	return b.result(Range{Off: uint64(p) * n, Len: n})
}

func (b *builder) ownAmongAll() {
	b.copyFrom(b.fromAmongAll(b.rank), b.source(b.task.part(b.rank)))
}
