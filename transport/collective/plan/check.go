package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// checker proves the programs of all ranks. It knows only what a plan must do, not how the
// programs were made.
type checker struct {
	plan     *Plan
	task     *Task
	programs []Program
	// base is the number of the first step of each rank, and of the end.
	base []int
}

// check proves that the programs do the task of the plan.
func check(p *Plan, programs []Program) error {
	c := &checker{plan: p, task: &p.Task, programs: programs, base: make([]int, len(programs)+1)}
	for r, program := range programs {
		c.base[r+1] = c.base[r] + len(program)
		for i := range program {
			if err := c.sense(Rank(r), i); err != nil {
				return err
			}
		}
	}
	g, err := c.graph()
	if err != nil {
		return err
	}
	order, err := g.sort()
	if err != nil {
		return err
	}
	if err := c.races(); err != nil {
		return err
	}
	if p.Task.Kind == Barrier {
		return c.met(g, order)
	}
	m := c.memory()
	for _, node := range order {
		if err := m.run(g.members[node]); err != nil {
			return err
		}
	}
	return m.results()
}

// wrong returns an error about a step.
func (c *checker) wrong(r Rank, i int, format string, args ...any) error {
	return fmt.Errorf("%w: rank %d, step %d (%v): %s", ErrWrong, r, i, c.programs[r][i], fmt.Sprintf(format, args...))
}

// size returns the number of elements of a buffer that a rank's program may use.
func (c *checker) size(r Rank, b Buffer) uint64 {
	whole := c.task.Place(r, Block{Buffer: Source})
	result := c.task.Place(r, Block{Buffer: Result})
	switch {
	case b == Scratch:
		return c.plan.Scratch
	case b == Source && whole.Buffer == Source:
		return c.task.SourceLen(r)
	case b == Result && result.Buffer == Result:
		return c.task.ResultLen(r)
	}
	return 0
}

// sense reports steps that no rank can run.
func (c *checker) sense(r Rank, i int) error {
	s := &c.programs[r][i]
	if s.Action < Send || s.Action > Sync {
		return c.wrong(r, i, "unknown action")
	}
	if s.Action >= Fetch && !c.plan.Shape.direct(c.task.Ranks) {
		return c.wrong(r, i, "the memory is not mapped by all ranks")
	}
	if s.Action == Sync {
		return nil
	}
	if s.Block.Len == 0 {
		return c.wrong(r, i, "the block has no elements")
	}
	if s.Action <= ReceiveCombine || s.Action == Fetch {
		if s.Peer < 0 || int(s.Peer) >= c.task.Ranks || s.Peer == r {
			return c.wrong(r, i, "rank %d is not a valid peer", s.Peer)
		}
	}
	if s.Action == Fold {
		ascending := slices.IsSortedFunc(s.To, func(a, b Rank) int { return cmp.Compare(a, b-1) })
		if n := len(s.To); n == 0 || !ascending || s.To[0] < 0 || int(s.To[n-1]) >= c.task.Ranks {
			return c.wrong(r, i, "the list of ranks is empty, not ascending or out of range")
		}
	}
	for _, a := range c.accesses(r, s) {
		if a.End() < a.Off || a.End() > c.size(a.of, a.Buffer) {
			return c.wrong(r, i, "%v exceeds the buffer of rank %d, which has %d elements", a.Block, a.of, c.size(a.of, a.Buffer))
		}
	}
	switch s.Action {
	case ReceiveCombine, Copy, CombineFrom, Fold:
		if s.From != s.Block && s.From.Overlaps(s.Block) {
			return c.wrong(r, i, "the operand %v partly overlaps the target", s.From)
		}
		fallthrough
	case Fetch:
		if s.From.Len != s.Block.Len {
			return c.wrong(r, i, "the operand %v has a different length", s.From)
		}
	default:
	}
	return nil
}

// access is a range of some rank's memory that a step reads or writes.
type access struct {
	Block
	of    Rank
	write bool
}

// accesses returns all that a step of a rank reads and writes.
func (c *checker) accesses(r Rank, s *Step) []access {
	switch s.Action {
	case Send:
		return []access{{s.Block, r, false}}
	case Receive, DivideBy:
		return []access{{s.Block, r, true}}
	case Fetch:
		return []access{{s.Block, r, true}, {s.From, s.Peer, false}}
	case Fold:
		var all []access
		for q := range c.task.Ranks {
			all = append(all, access{s.From, Rank(q), false})
		}
		for _, q := range s.To {
			all = append(all, access{s.Block, q, true})
		}
		return all
	case ReceiveCombine, Copy, CombineFrom:
		return []access{{s.Block, r, true}, {s.From, r, false}}
	case Sync:
	}
	return nil
}

// done is an access that a rank makes in some step.
type done struct {
	access
	by   Rank
	step int
}

// races reports memory that one rank may write while another one reads or writes it. Only a
// Sync separates the accesses of two ranks: other ranks may touch a rank's memory after the
// first Sync and before the last.
func (c *checker) races() error {
	all, err := c.places()
	if err != nil {
		return err
	}
	for k, list := range all {
		for i, a := range list {
			for _, b := range list[:i] {
				if a.by != b.by && (a.write || b.write) && a.Overlaps(b.Block) {
					return c.wrong(a.by, a.step, "rank %d accesses %v of rank %d at the same time", b.by, b.Block, k.of)
				}
			}
		}
	}
	return nil
}

// place is the memory of a rank after some number of Syncs.
type place struct {
	of    Rank
	phase int
}

// places returns the accesses to each place. Without a Sync, no rank may touch another
// one's memory, and the steps of each rank are ordered anyway.
func (c *checker) places() (map[place][]done, error) {
	syncs := 0
	for _, s := range c.programs[0] {
		if s.Action == Sync {
			syncs++
		}
	}
	all := make(map[place][]done)
	for r, program := range c.programs {
		phase := 0
		for i := range program {
			s := &program[i]
			if s.Action == Sync {
				phase++
			}
			if syncs == 0 && s.Action < Fetch {
				continue
			}
			for _, a := range c.accesses(Rank(r), s) {
				if a.of != Rank(r) && (phase == 0 || phase == syncs) {
					return nil, c.wrong(Rank(r), i, "rank %d may not have arrived yet, or may have left", a.of)
				}
				k := place{a.of, phase}
				all[k] = append(all[k], done{a, Rank(r), i})
			}
		}
	}
	return all, nil
}

// met proves for a Barrier that no rank leaves it before all have come.
func (c *checker) met(g *graph, order []int) error {
	// known[i] is the set of ranks that have come before step i ends.
	known := make([]uint64, c.base[len(c.programs)])
	before := g.reverse()
	for _, node := range order {
		joint := uint64(0)
		// The sender is the first member, and learns nothing from the receiver: a link may
		// hold a message that has not been received yet.
		for _, m := range g.members[node] {
			bits := uint64(1) << m.rank
			for _, i := range before[m.number] {
				bits |= known[i]
			}
			joint |= bits
			known[m.number] = joint
		}
		if len(g.members[node]) > 0 && g.members[node][0].step.Action == Sync {
			for _, m := range g.members[node] {
				known[m.number] = joint
			}
		}
	}
	for r := range c.programs {
		bits := uint64(1) << r
		for i := c.base[r]; i < c.base[r+1]; i++ {
			bits |= known[i]
		}
		for q := range c.programs {
			if bits>>q&1 == 0 {
				return fmt.Errorf("%w: rank %d does not wait for rank %d", ErrWrong, r, q)
			}
		}
	}
	return nil
}
