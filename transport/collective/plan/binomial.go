package plan

import (
	"math/bits"
	"slices"
)

// rounds returns how often something doubles until it has reached n ranks.
func rounds(n int) int { return bits.Len(uint(n - 1)) }

// binomial grows a tree from the root: after round s, 1<<s ranks are in it.
func (b *builder) binomial() {
	c, k := b.everybody(), b.result(b.whole())
	switch b.task.Kind {
	case Reduce:
		c.shrink(b.task.Root)
	case AllReduce:
		c.shrink(b.order[0])
		c.grow(b.order[0], func(to Rank) { b.send(to, k) }, func(from Rank) { b.receive(from, k) })
	default:
		b.rootOwn()
		c.grow(b.task.Root, func(to Rank) { b.send(to, k) }, func(from Rank) { b.receive(from, k) })
	}
}

// rootOwn puts what the root of a Broadcast gives in its own result.
func (b *builder) rootOwn() {
	if b.rank == b.task.Root {
		b.copyFrom(b.result(b.whole()), b.source(b.whole()))
	}
}

// distance returns how far behind a rank of the crowd we are in the ring.
func (c crowd) distance(of Rank) int { return c.wrap(c.me - slices.Index(c.ranks, of)) }

// grow goes from the root to everybody.
func (c crowd) grow(root Rank, send, receive func(peer Rank)) {
	d, n := c.distance(root), len(c.ranks)
	for s := range rounds(n) {
		half := 1 << s
		switch {
		case d < half && d+half < n:
			send(c.at(c.me + half))
		case d >= half && d < 2*half:
			receive(c.at(c.me - half))
		}
	}
}

// fall goes from everybody to the root: it is grow backwards.
func (c crowd) fall(root Rank, send, receive func(peer Rank)) {
	d, n := c.distance(root), len(c.ranks)
	for s := rounds(n) - 1; s >= 0; s-- {
		half := 1 << s
		switch {
		case d < half && d+half < n:
			receive(c.at(c.me + half))
		case d >= half && d < 2*half:
			send(c.at(c.me - half))
		}
	}
}

// shrink combines everybody's source into the root's result, and divides it.
func (c crowd) shrink(root Rank) {
	b := c.b
	s := b.wholeSum(root)
	c.fall(root, func(to Rank) { b.sendAll(to, s.at[0]) }, func(from Rank) { s.combine(from, 0) })
	if b.rank == root {
		s.settle(0)
		b.averageAll(s.at[0])
	}
}

// wholeSum is our value of the whole, which a root gets in the end.
func (b *builder) wholeSum(root Rank) *sums {
	s := &sums{b: b, at: []pieces{{b.source(b.whole())}}, place: []pieces{nil}, mine: []bool{false}}
	if b.task.Kind == AllReduce || b.rank == root {
		s.place[0] = pieces{b.result(b.whole())}
	}
	return s
}

// words is a rank's message in a Barrier: that it, and all it has heard of,
// have come. What it hears is copied to where it speaks from: so a word comes
// after all that was heard before, and none has to be heard before its rank can
// hear one.
type words struct {
	b           *builder
	told, heard Block
}

func (b *builder) words() words { return words{b, b.take(1), b.take(1)} }

func (w words) tell(to Rank) { w.b.send(to, w.told) }

func (w words) hear(from Rank) {
	w.b.receive(from, w.heard)
	w.b.copyFrom(w.told, w.heard)
}

// disseminate has each rank tell another one in each round.
func (c crowd) disseminate(w words) {
	for s := range rounds(len(c.ranks)) {
		w.tell(c.at(c.me + 1<<s))
		w.hear(c.at(c.me - 1<<s))
	}
}
