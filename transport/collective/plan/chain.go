package plan

import "slices"

// The pieces of a chain: small enough to fill a long chain soon, large enough that the cost
// of messages is low, and few enough to keep a program short.
const (
	pieceBytes = 256 << 10
	maxPieces  = 128
	// ahead is the number of pieces that a rank which only combines may hold.
	ahead = 4
)

// chain passes all elements along a line of ranks, in pieces.
func (b *builder) chain() {
	n := b.pieces()
	cut := func(i int) Range { return b.task.cut(b.task.Count, i, n) }
	switch b.task.Kind {
	case Broadcast:
		b.rootOwn()
		c := b.all
		d := c.distance(b.task.Root)
		for i := range n {
			if d > 0 {
				b.receive(c.at(c.me-1), b.result(cut(i)))
			}
			if d < b.n-1 {
				b.send(c.at(c.me+1), b.result(cut(i)))
			}
		}
	case AllReduce:
		c := b.line()
		for i := range n {
			b.up(c, pieces{b.source(cut(i))}, pieces{b.result(cut(i))})
		}
		for i := range n {
			b.down(c, b.result(cut(i)))
		}
	default:
		b.chainReduce(n, cut)
	}
}

// pieces returns the number of pieces into which a chain cuts the whole.
func (b *builder) pieces() int {
	total := b.task.Count * b.task.Type.Size()
	return int(min(max((total+pieceBytes-1)/pieceBytes, 1), maxPieces))
}

// line returns the chain of a reduction: in the order of the ranks if the task requires it,
// otherwise with the root at the end.
func (b *builder) line() rankSet {
	ranks := make([]Rank, b.n)
	for i := range ranks {
		switch {
		case b.task.ordered():
			ranks[i] = Rank(i)
		case b.task.Kind == Reduce:
			ranks[i] = b.all.at(b.all.place(b.task.Root) + 1 + i)
		default:
			ranks[i] = b.all.ranks[i]
		}
	}
	return b.among(ranks)
}

// place returns the position of a rank in the ring.
func (c rankSet) place(r Rank) int { return slices.Index(c.ranks, r) }

// up combines our own piece with the one from the previous rank of the line, and passes it
// on; the last rank divides.
func (b *builder) up(c rankSet, own, sum pieces) {
	s := &sums{b: b, at: []pieces{own}, place: []pieces{sum}, mine: []bool{false}}
	if c.me > 0 {
		s.combine(c.ranks[c.me-1], 0)
	}
	if c.me < b.n-1 {
		b.sendAll(c.ranks[c.me+1], s.at[0])
		return
	}
	s.settle(0)
	b.averageAll(s.at[0])
}

// down passes the result of the last rank of the line back to the first.
func (b *builder) down(c rankSet, k Block) {
	if c.me < b.n-1 {
		b.receive(c.ranks[c.me+1], k)
	}
	if c.me > 0 {
		b.send(c.ranks[c.me-1], k)
	}
}

// chainReduce reduces to the root. If the last rank of the line is another one, it sends
// the result to the root.
func (b *builder) chainReduce(n int, cut func(int) Range) {
	c, root := b.line(), b.task.Root
	last := c.ranks[b.n-1]
	direct := b.rank == root && last == root
	var slots []Block
	if c.me > 0 && !direct {
		for range min(n, ahead) {
			slots = append(slots, b.take(cut(0).Len))
		}
	}
	for i := range n {
		own := b.source(cut(i))
		sum := b.result(cut(i))
		switch {
		case len(slots) > 0:
			sum = slots[i%len(slots)]
			sum.Len = own.Len
		case !direct:
			sum = own // the first one only sends
		}
		b.up(c, pieces{own}, pieces{sum})
		switch {
		case last == root:
		case b.rank == last:
			b.send(root, sum)
		case b.rank == root:
			b.receive(last, b.result(cut(i)))
		}
	}
}
