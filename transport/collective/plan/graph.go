package plan

import (
	"fmt"
	"slices"
	"strings"
)

// member is a step of a rank; number is its index among the steps of all ranks.
type member struct {
	rank   Rank
	index  int
	number int
	step   *Step
}

// graph holds the steps of all ranks and their order. A Send and its Receive form one node,
// as if links held no byte. So do the Syncs of all ranks.
type graph struct {
	// node maps each step to its node, members each node to its steps.
	node    []int
	members [][]member
	// after lists, for each step, the steps of the same rank that come after it.
	after [][]int
}

// graph matches sends with receives, and adds the order within each rank.
func (c *checker) graph() (*graph, error) {
	total := c.base[len(c.programs)]
	g := &graph{node: make([]int, total), after: make([][]int, total)}
	type link struct{ from, to Rank }
	sends, receives := make(map[link][]member), make(map[link][]member)
	var syncs [][]member
	for r, program := range c.programs {
		own := 0
		for i := range program {
			m := member{Rank(r), i, c.base[r] + i, &program[i]}
			switch s := m.step; s.Action {
			case Send:
				sends[link{m.rank, s.Peer}] = append(sends[link{m.rank, s.Peer}], m)
			case Receive, ReceiveCombine:
				receives[link{s.Peer, m.rank}] = append(receives[link{s.Peer, m.rank}], m)
			case Sync:
				if own == len(syncs) {
					syncs = append(syncs, nil)
				}
				syncs[own] = append(syncs[own], m)
				own++
			default:
				g.add(m)
			}
		}
		g.local(c.base[r], program)
	}
	for k, list := range receives {
		if len(sends[k]) < len(list) {
			m := list[len(sends[k])]
			return nil, c.wrong(m.rank, m.index, "rank %d has no matching send", k.from)
		}
	}
	for k, list := range sends {
		for i, m := range list {
			if i >= len(receives[k]) {
				return nil, c.wrong(m.rank, m.index, "rank %d has no matching receive", k.to)
			}
			to := receives[k][i]
			if m.step.Block.Len != to.step.Block.Len {
				return nil, c.wrong(m.rank, m.index, "rank %d's step %d (%v) has a different length", to.rank, to.index, to.step)
			}
			g.add(m, to)
		}
	}
	for _, list := range syncs {
		if len(list) != len(c.programs) {
			return nil, c.wrong(list[0].rank, list[0].index, "only %d of %d ranks have this step", len(list), len(c.programs))
		}
		g.add(list...)
	}
	return g, nil
}

func (g *graph) add(members ...member) {
	for _, m := range members {
		g.node[m.number] = len(g.members)
	}
	g.members = append(g.members, members)
}

// local adds the order of the steps of one rank, whose first step has the number base.
func (g *graph) local(base int, program Program) {
	for j, waits := range program.Waits() {
		for _, w := range waits {
			g.after[base+w.Step] = append(g.after[base+w.Step], base+j)
		}
	}
	type line struct {
		receive, local bool
		peer           Rank
	}
	last := make(map[line]int)
	for j := range program {
		l := line{local: true}
		switch s := &program[j]; s.Action {
		case Sync:
			continue
		case Send:
			l = line{peer: s.Peer}
		case Receive, ReceiveCombine:
			l = line{peer: s.Peer, receive: true}
		default:
		}
		if i, found := last[l]; found {
			g.after[base+i] = append(g.after[base+i], base+j)
		}
		last[l] = j
	}
}

// reverse returns, for each step, the steps of the same rank that come before it.
func (g *graph) reverse() [][]int {
	before := make([][]int, len(g.after))
	for i, list := range g.after {
		for _, j := range list {
			before[j] = append(before[j], i)
		}
	}
	return before
}

// sort returns the nodes in an order in which they can run.
func (g *graph) sort() ([]int, error) {
	waits := make([]int, len(g.members))
	for _, list := range g.after {
		for _, j := range list {
			waits[g.node[j]]++
		}
	}
	var order []int
	for node, n := range waits {
		if n == 0 {
			order = append(order, node)
		}
	}
	for i := 0; i < len(order); i++ {
		for _, m := range g.members[order[i]] {
			for _, j := range g.after[m.number] {
				node := g.node[j]
				if waits[node]--; waits[node] == 0 {
					order = append(order, node)
				}
			}
		}
	}
	if len(order) == len(g.members) {
		return order, nil
	}
	return nil, g.stuck(waits)
}

// stuck returns an error that names, for each rank, the first step that never runs.
func (g *graph) stuck(waits []int) error {
	var first []member
	for node, n := range waits {
		if n == 0 {
			continue
		}
		for _, m := range g.members[node] {
			i := slices.IndexFunc(first, func(f member) bool { return f.rank == m.rank })
			switch {
			case i < 0:
				first = append(first, m)
			case m.index < first[i].index:
				first[i] = m
			}
		}
	}
	slices.SortFunc(first, func(a, b member) int { return int(a.rank - b.rank) })
	var text strings.Builder
	for _, m := range first {
		fmt.Fprintf(&text, "; rank %d in step %d (%v)", m.rank, m.index, m.step)
	}
	return fmt.Errorf("%w: the ranks wait for each other forever%s", ErrWrong, text.String())
}
