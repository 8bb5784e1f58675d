package plan

import "github.com/hmcfs/hmcfs/devices/elem"

// builder makes the program of one rank. Its methods leave out steps that have
// no elements or would put elements where they are.
type builder struct {
	plan  *Plan
	task  *Task
	rank  Rank
	n     int
	order []Rank
	// pos is where our rank is in order.
	pos     int
	steps   Program
	scratch uint64
}

func newBuilder(p *Plan, r Rank) *builder {
	b := &builder{plan: p, task: &p.Task, rank: r, n: p.Task.Ranks, order: p.Shape.order(p.Task.Ranks)}
	for i, o := range b.order {
		if o == r {
			b.pos = i
		}
	}
	return b
}

// at is the rank at a position of the ring, which may be counted from any side.
func (b *builder) at(pos int) Rank { return b.order[((pos%b.n)+b.n)%b.n] }

func (b *builder) sourceOf(r Rank, g Range) Block { return b.task.Place(r, Block{Source, g}) }
func (b *builder) resultOf(r Rank, g Range) Block { return b.task.Place(r, Block{Result, g}) }
func (b *builder) source(g Range) Block           { return b.sourceOf(b.rank, g) }
func (b *builder) result(g Range) Block           { return b.resultOf(b.rank, g) }

// whole is all elements of the task.
func (b *builder) whole() Range { return Range{Len: b.task.Count} }

// take sets elements of scratch aside.
func (b *builder) take(n uint64) Block {
	s := Block{Scratch, Range{b.scratch, n}}
	b.scratch += n
	return s
}

func (b *builder) step(s Step) {
	if s.Block.Len > 0 {
		b.steps = append(b.steps, s)
	}
}

func (b *builder) send(to Rank, k Block)      { b.step(Step{Action: Send, Peer: to, Block: k}) }
func (b *builder) receive(from Rank, k Block) { b.step(Step{Action: Receive, Peer: from, Block: k}) }
func (b *builder) combine(from Rank, k, own Block) {
	b.step(Step{Action: ReceiveCombine, Peer: from, Block: k, From: own})
}

func (b *builder) copyFrom(k, from Block) {
	if k != from {
		b.step(Step{Action: Copy, Block: k, From: from})
	}
}

func (b *builder) combineFrom(k, from Block) { b.step(Step{Action: CombineFrom, Block: k, From: from}) }

func (b *builder) fetch(peer Rank, k, from Block) {
	b.step(Step{Action: Fetch, Peer: peer, Block: k, From: from})
}

func (b *builder) fold(k, from Block, to []Rank) {
	b.step(Step{Action: Fold, Block: k, From: from, To: to})
}

func (b *builder) sync() { b.steps = append(b.steps, Step{Action: Sync}) }

// average divides where the task is one of elem.Avg.
func (b *builder) average(k Block) {
	if b.task.Op == elem.Avg && b.n > 1 {
		b.step(Step{Action: DivideBy, Block: k})
	}
}

// everyone is all ranks, in ascending order.
func (b *builder) everyone() []Rank {
	all := make([]Rank, b.n)
	for i := range all {
		all[i] = Rank(i)
	}
	return all
}

// reduction is what a rank knows of the slices of a reduction: where its present
// value of each is. At first that is its source.
type reduction struct {
	b *builder
	// at is by the rank that owns the slice in the end.
	at []Block
	// own is whether the value is ours to overwrite.
	own []bool
	// slots are the scratch for slices that have no place in our result, taken
	// in turn; nil has each take its own.
	slots []Block
	next  int
}

func (b *builder) reduction() *reduction {
	s := &reduction{b: b, at: make([]Block, b.n), own: make([]bool, b.n)}
	for i := range s.at {
		s.at[i] = b.source(s.rangeOf(Rank(i)))
	}
	return s
}

// rangeOf is the slice of a rank in the source.
func (s *reduction) rangeOf(owner Rank) Range {
	if s.b.task.Kind == ReduceScatter {
		return s.b.task.part(owner)
	}
	return s.b.task.slice(owner)
}

// turns has slices without a place in the result share n places in scratch.
func (s *reduction) turns(n int) {
	longest := uint64(0)
	for i := range s.at {
		longest = max(longest, s.at[i].Len)
	}
	if s.b.n <= 2 || s.place(s.b.at(s.b.pos+1)).Buffer != 0 {
		return
	}
	for range n {
		s.slots = append(s.slots, s.b.take(longest))
	}
}

// place is where a slice has its place in our result; no buffer if it has none.
func (s *reduction) place(owner Rank) Block {
	t := s.b.task
	switch {
	case t.Kind == AllReduce, t.Kind == Reduce && s.b.rank == t.Root:
		return s.b.result(s.rangeOf(owner))
	case t.Kind == ReduceScatter && owner == s.b.rank:
		return s.b.result(Range{Len: s.rangeOf(owner).Len})
	}
	return Block{}
}

// home is where the value of a slice is put that has not been combined yet.
func (s *reduction) home(owner Rank) Block {
	if k := s.place(owner); k.Buffer != 0 {
		return k
	}
	n := s.rangeOf(owner).Len
	if len(s.slots) == 0 {
		return s.b.take(n)
	}
	k := s.slots[s.next%len(s.slots)]
	s.next++
	k.Len = n
	return k
}

// send gives our value of a slice to a peer.
func (s *reduction) send(to, owner Rank) { s.b.send(to, s.at[owner]) }

// combine adds a peer's value of a slice to ours.
func (s *reduction) combine(from, owner Rank) {
	k := s.at[owner]
	if !s.own[owner] {
		k = s.home(owner)
	}
	s.b.combine(from, k, s.at[owner])
	s.at[owner], s.own[owner] = k, true
}

// settle puts a slice that nobody combined in its place.
func (s *reduction) settle(owner Rank) {
	if s.own[owner] {
		return
	}
	k := s.home(owner)
	s.b.copyFrom(k, s.at[owner])
	s.at[owner], s.own[owner] = k, true
}
