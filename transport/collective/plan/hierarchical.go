package plan

import "slices"

// lanes is the view that a hierarchical plan has of the ranks: from each node the same
// number of ranks, the lanes, communicate between the nodes, each for its share. The other
// ranks of a node use the lane given by their index in the node, modulo the number of
// lanes.
type lanes struct {
	b     *builder
	nodes [][]Rank
	// node and place are our node and our index in it; n is the number of lanes.
	node  int
	place int
	n     int
}

func (b *builder) lanes() lanes {
	l := lanes{b: b, nodes: b.plan.Shape.nodes(b.n), n: b.n}
	for x, ranks := range l.nodes {
		l.n = min(l.n, len(ranks))
		for j, r := range ranks {
			if r == b.rank {
				l.node, l.place = x, j
			}
		}
	}
	return l
}

// inside returns the rankSet of the ranks of our node.
func (l lanes) inside() rankSet { return rankSet{l.b, l.nodes[l.node], l.place} }

// between returns the rankSet of the ranks of our lane, one of each node. We must be one of
// them.
func (l lanes) between() rankSet {
	ranks := make([]Rank, len(l.nodes))
	for x := range l.nodes {
		ranks[x] = l.nodes[x][l.place]
	}
	return rankSet{l.b, ranks, l.node}
}

// goes reports whether we communicate between the nodes.
func (l lanes) goes() bool { return l.place < l.n }

// members returns the ranks of a node that belong to a lane, starting with the one that
// communicates between the nodes.
func (l lanes) members(node, lane int) []Rank {
	var all []Rank
	for j := lane; j < len(l.nodes[node]); j += l.n {
		all = append(all, l.nodes[node][j])
	}
	return all
}

// hierarchical works inside each node, between the nodes, and inside each node again.
func (b *builder) hierarchical() {
	l := b.lanes()
	switch b.task.Kind {
	case AllReduce:
		l.allReduce()
	case ReduceScatter:
		l.reduceScatter()
	case AllGather:
		l.allGather()
	case Broadcast:
		b.rootOwn()
		k := b.result(b.whole())
		l.grow(func(to Rank) { b.send(to, k) }, func(from Rank) { b.receive(from, k) })
	case Reduce:
		s := b.wholeSum(b.task.Root)
		l.fall(func(to Rank) { b.sendAll(to, s.at[0]) }, func(from Rank) { s.combine(from, 0) })
		if b.rank == b.task.Root {
			b.averageAll(s.at[0])
		}
	case Barrier:
		w := b.barrierMessages()
		l.fallInside(w.send, w.receive)
		if in, leader := l.leaders(); leader {
			in.disseminate(w)
		}
		l.growInside(w.send, w.receive)
	case AllToAll:
	}
}

// leader returns the rank that communicates between the nodes on behalf of a node: the root
// in its own node.
func (l lanes) leader(node int) Rank {
	if root := l.b.task.Root; slices.Contains(l.nodes[node], root) {
		return root
	}
	return l.nodes[node][0]
}

// leaders returns the rankSet of the leaders of all nodes, and whether we are one.
func (l lanes) leaders() (rankSet, bool) {
	ranks := make([]Rank, len(l.nodes))
	for x := range l.nodes {
		ranks[x] = l.leader(x)
	}
	return rankSet{l.b, ranks, l.node}, ranks[l.node] == l.b.rank
}

func (l lanes) growInside(send, receive func(Rank)) {
	l.inside().grow(l.leader(l.node), send, receive)
}

func (l lanes) fallInside(send, receive func(Rank)) {
	l.inside().fall(l.leader(l.node), send, receive)
}

// grow passes something from the root to the leaders, and from them to all ranks.
func (l lanes) grow(send, receive func(Rank)) {
	if c, leader := l.leaders(); leader {
		c.grow(l.b.task.Root, send, receive)
	}
	l.growInside(send, receive)
}

// fall is grow in reverse.
func (l lanes) fall(send, receive func(Rank)) {
	l.fallInside(send, receive)
	if c, leader := l.leaders(); leader {
		c.fall(l.b.task.Root, send, receive)
	}
}

// toLanes sends each lane of our node the elements that it combines, and combines those of
// our own lane.
func (l lanes) toLanes(of func(lane int) pieces, combine func(from Rank)) {
	in := l.inside()
	in.others(func(i int) {
		if i < l.n {
			l.b.sendAll(in.ranks[i], of(i))
		}
		if l.goes() {
			combine(in.at(2*in.me - i))
		}
	})
}

// fromLanes sends the elements of our lane to all ranks of our node, and receives those of
// the other lanes.
func (l lanes) fromLanes(of func(lane int, to Rank) pieces) {
	in := l.inside()
	in.others(func(i int) {
		if l.goes() {
			l.b.sendAll(in.ranks[i], of(l.place, in.ranks[i]))
		}
		if from := in.wrap(2*in.me - i); from < l.n {
			l.b.receiveAll(in.ranks[from], of(from, l.b.rank))
		}
	})
}

// allReduce has each lane combine its share of the whole.
func (l lanes) allReduce() {
	b, t := l.b, l.b.task
	m := len(l.nodes)
	lane := func(i int) Range { return t.cut(t.Count, i, l.n) }
	// sub is the part of a lane's share that a node owns during the exchange between nodes.
	sub := func(i, node int) Range {
		g := t.cut(lane(i).Len, node, m)
		g.Off += lane(i).Off
		return g
	}
	s := &sums{b: b, at: make([]pieces, m), place: make([]pieces, m), mine: make([]bool, m)}
	for x := range l.nodes {
		if l.goes() {
			s.at[x] = pieces{b.source(sub(l.place, x))}
			s.place[x] = pieces{b.result(sub(l.place, x))}
		}
	}
	l.toLanes(func(i int) pieces {
		var all pieces
		for x := range l.nodes {
			all = append(all, b.source(sub(i, x)))
		}
		return all
	}, func(from Rank) {
		for x := range l.nodes {
			s.combine(from, x)
		}
	})
	if l.goes() {
		c := l.between()
		c.scatterNHR(s)
		b.averageAll(s.at[c.me])
		c.gatherNHR(s.place)
	}
	l.fromLanes(func(i int, _ Rank) pieces { return pieces{b.result(lane(i))} })
}

// parts returns the places of the parts of a node's ranks that belong to a lane, except one
// rank's.
func (l lanes) parts(lane, node int, place func(Range) Block, except Rank) (all pieces) {
	for _, r := range l.members(node, lane) {
		if r != except {
			all = append(all, place(l.b.task.part(r)))
		}
	}
	return all
}

// partsOfAll returns the parts of all nodes.
func (l lanes) partsOfAll(lane int, place func(Range) Block, except Rank) (all pieces) {
	for x := range l.nodes {
		all = append(all, l.parts(lane, x, place, except)...)
	}
	return all
}

// nobody is no rank.
const nobody Rank = -1

// reduceScatter has each lane combine the parts of all ranks that belong to it.
func (l lanes) reduceScatter() {
	b, t := l.b, l.b.task
	m := len(l.nodes)
	s := &sums{b: b, at: make([]pieces, m), place: make([]pieces, m), mine: make([]bool, m)}
	if l.goes() {
		for x := range l.nodes {
			s.at[x] = l.parts(l.place, x, b.source, nobody)
		}
		// Our own part is combined directly in the result.
		own := pieces{b.result(Range{Len: t.part(b.rank).Len})}
		for _, r := range l.members(l.node, l.place)[1:] {
			own = append(own, b.take(t.part(r).Len))
		}
		s.place[l.node] = own
	}
	l.toLanes(func(i int) pieces { return l.partsOfAll(i, b.source, nobody) }, func(from Rank) {
		for x := range l.nodes {
			s.combine(from, x)
		}
	})
	if !l.goes() {
		b.receive(l.nodes[l.node][l.place%l.n], b.result(Range{Len: t.part(b.rank).Len}))
		return
	}
	l.between().scatterNHR(s)
	b.averageAll(s.at[l.node])
	for j, r := range l.members(l.node, l.place)[1:] {
		b.send(r, s.at[l.node][j+1])
	}
}

// allGather is reduceScatter in reverse.
func (l lanes) allGather() {
	b, t := l.b, l.b.task
	b.gatherOwn()
	if l.goes() {
		for _, r := range l.members(l.node, l.place)[1:] {
			b.receive(r, b.result(t.part(r)))
		}
		all := make([]pieces, len(l.nodes))
		for x := range l.nodes {
			all[x] = l.parts(l.place, x, b.result, nobody)
		}
		l.between().gatherNHR(all)
	} else {
		b.send(l.nodes[l.node][l.place%l.n], b.result(t.part(b.rank)))
	}
	l.fromLanes(func(lane int, to Rank) pieces { return l.partsOfAll(lane, b.result, to) })
}
