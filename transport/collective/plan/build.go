package plan

import "github.com/hmcfs/hmcfs/devices/elem"

// builder makes the program of one rank. Its methods omit steps that have no elements, and
// copies of a block to itself.
type builder struct {
	plan *Plan
	task *Task
	rank Rank
	n    int
	// all has all ranks, in the order of the ring.
	all     rankSet
	steps   Program
	scratch uint64
}

func newBuilder(p *Plan, r Rank) *builder {
	b := &builder{plan: p, task: &p.Task, rank: r, n: p.Task.Ranks}
	b.all = b.among(p.Shape.order(b.n))
	return b
}

func (b *builder) sourceOf(r Rank, g Range) Block { return b.task.Place(r, Block{Source, g}) }
func (b *builder) resultOf(r Rank, g Range) Block { return b.task.Place(r, Block{Result, g}) }
func (b *builder) source(g Range) Block           { return b.sourceOf(b.rank, g) }
func (b *builder) result(g Range) Block           { return b.resultOf(b.rank, g) }

// whole returns the range of all elements of the task.
func (b *builder) whole() Range { return Range{Len: b.task.Count} }

// take reserves n elements of scratch.
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

func (b *builder) send(to Rank, k Block) { b.step(Step{Action: Send, Peer: to, Block: k}) }

func (b *builder) receive(from Rank, k Block) {
	b.step(Step{Action: Receive, Peer: from, Block: k})
}

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

// average adds the division, if the operation of the task is elem.Avg.
func (b *builder) average(k Block) {
	if b.task.Op == elem.Avg && b.n > 1 {
		b.step(Step{Action: DivideBy, Block: k})
	}
}
