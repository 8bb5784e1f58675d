package plan

import "math/bits"

// rounds is how often something doubles until it has reached n ranks.
func rounds(n int) int { return bits.Len(uint(n - 1)) }

// binomial grows a tree from the root: after round s, 2^s ranks are in it.
func (b *builder) binomial() {
	switch b.task.Kind {
	case Reduce:
		b.shrink(b.task.Root)
	case AllReduce:
		b.shrink(b.order[0])
		b.grow(b.order[0], b.result(b.whole()))
	default:
		if b.rank == b.task.Root {
			b.copyFrom(b.result(b.whole()), b.source(b.whole()))
		}
		b.grow(b.task.Root, b.result(b.whole()))
	}
}

// distance is how far behind a rank we are in the ring.
func (b *builder) distance(of Rank) int {
	for i := range b.n {
		if b.at(b.pos-i) == of {
			return i
		}
	}
	return 0
}

// grow hands a block from the root to everybody.
func (b *builder) grow(root Rank, k Block) {
	d := b.distance(root)
	for s := range rounds(b.n) {
		half := 1 << s
		switch {
		case d < half && d+half < b.n:
			b.send(b.at(b.pos+half), k)
		case d >= half && d < 2*half:
			b.receive(b.at(b.pos-half), k)
		}
	}
}

// shrink is grow backwards: everybody's source is combined into the root's
// result, and divided there.
func (b *builder) shrink(root Rank) {
	d := b.distance(root)
	own := b.source(b.whole())
	sum := Block{}
	switch {
	case b.task.Kind == AllReduce, b.rank == root:
		sum = b.result(b.whole())
	case d+1<<bits.Len(uint(d)) < b.n: // somebody sends to us
		sum = b.take(b.task.Count)
	}
	for s := rounds(b.n) - 1; s >= 0; s-- {
		half := 1 << s
		switch {
		case d < half && d+half < b.n:
			b.combine(b.at(b.pos+half), sum, own)
			own = sum
		case d >= half && d < 2*half:
			b.send(b.at(b.pos-half), own)
		}
	}
	if d > 0 {
		return
	}
	if b.n == 1 {
		b.copyFrom(sum, own)
	}
	b.average(sum)
}

// dissemination has each rank tell another one in each round that it, and all
// that it has heard of, have come. What it hears is copied to where it sends
// from: so a message comes after all that was heard before, and nobody's own
// message has to be read before it can hear one.
func (b *builder) dissemination() {
	told, heard := b.take(1), b.take(1)
	for s := range rounds(b.n) {
		b.send(b.at(b.pos+1<<s), told)
		b.receive(b.at(b.pos-1<<s), heard)
		if s+1 < rounds(b.n) {
			b.copyFrom(told, heard)
		}
	}
}
