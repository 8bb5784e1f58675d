package plan

import (
	"math/bits"
	"slices"
)

// rounds returns the number of doublings, starting from 1, needed to reach n ranks.
func rounds(n int) int { return bits.Len(uint(n - 1)) }

// binomial grows a tree from the root: after round s, it contains 1<<s ranks.
func (b *builder) binomial() {
	c, k := b.all, b.result(b.whole())
	switch b.task.Kind {
	case Reduce:
		c.shrink(b.task.Root)
	case AllReduce:
		c.shrink(c.ranks[0])
		c.grow(c.ranks[0], func(to Rank) { b.send(to, k) }, func(from Rank) { b.receive(from, k) })
	default:
		b.rootOwn()
		c.grow(b.task.Root, func(to Rank) { b.send(to, k) }, func(from Rank) { b.receive(from, k) })
	}
}

// rootOwn copies the source of the root of a Broadcast to its own result.
func (b *builder) rootOwn() {
	if b.rank == b.task.Root {
		b.copyFrom(b.result(b.whole()), b.source(b.whole()))
	}
}

// distance returns the number of positions from rank of to our own in the ring.
func (c rankSet) distance(of Rank) int { return c.wrap(c.me - slices.Index(c.ranks, of)) }

// grow passes something from the root to all ranks.
func (c rankSet) grow(root Rank, send, receive func(peer Rank)) {
	for s := range rounds(len(c.ranks)) {
		c.branch(root, s, send, receive)
	}
}

// fall passes something from all ranks to the root: grow in reverse.
func (c rankSet) fall(root Rank, send, receive func(peer Rank)) {
	for s := rounds(len(c.ranks)) - 1; s >= 0; s-- {
		c.branch(root, s, receive, send)
	}
}

// branch calls down for our child of round s, or up for our parent if it got us in that round.
func (c rankSet) branch(root Rank, s int, down, up func(peer Rank)) {
	d, half := c.distance(root), 1<<s
	switch {
	case d < half && d+half < len(c.ranks):
		down(c.at(c.me + half))
	case d >= half && d < 2*half:
		up(c.at(c.me - half))
	}
}

// shrink combines the sources of all ranks into the root's result, and divides it.
func (c rankSet) shrink(root Rank) {
	b := c.b
	s := b.wholeSum(root)
	c.fall(root, func(to Rank) { b.sendAll(to, s.at[0]) }, func(from Rank) { s.combine(from, 0) })
	if b.rank == root {
		s.settle(0)
		b.averageAll(s.at[0])
	}
}

// wholeSum returns our value of the whole, which ends at a root.
func (b *builder) wholeSum(root Rank) *sums {
	s := &sums{b: b, at: []pieces{{b.source(b.whole())}}, place: []pieces{nil}, mine: []bool{false}}
	if b.task.Kind == AllReduce || b.rank == root {
		s.place[0] = pieces{b.result(b.whole())}
	}
	return s
}

// barrierMessages is a rank's message in a Barrier: that it has come, and so have all ranks whose
// messages it has received. A received message is copied to the block that is sent: so a
// send comes after everything received before it, but no message must be received before
// its rank can receive one.
type barrierMessages struct {
	b              *builder
	sent, received Block
}

func (b *builder) barrierMessages() barrierMessages { return barrierMessages{b, b.take(1), b.take(1)} }

func (w barrierMessages) send(to Rank) { w.b.send(to, w.sent) }

func (w barrierMessages) receive(from Rank) {
	w.b.receive(from, w.received)
	w.b.copyFrom(w.sent, w.received)
}

// disseminate has each rank send to one other rank in each round.
func (c rankSet) disseminate(w barrierMessages) {
	for s := range rounds(len(c.ranks)) {
		w.send(c.at(c.me + 1<<s))
		w.receive(c.at(c.me - 1<<s))
	}
}
