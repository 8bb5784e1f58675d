package collective

import (
	"slices"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// program holds the steps of one rank, for the executor.
type program struct {
	steps  []step
	phases []phase
	// element is the size of an element, in bytes.
	element uint64
	// paging describes how staged buffers are used; nil if none is staged.
	paging *paging
}

// newProgram translates a rank's program.
func newProgram(p plan.Program, rank plan.Rank, element uint64, st staging) *program {
	g := &program{element: element}
	for i := range p {
		g.steps = append(g.steps, translate(&p[i], rank, element))
	}
	for i, waits := range p.Waits() {
		g.steps[i].waits = waits
	}
	g.cut()
	g.paging = newPaging(g.steps, g.phases, st)
	return g
}

func translate(s *plan.Step, rank plan.Rank, element uint64) step {
	t := step{action: s.Action, peer: s.Peer, block: bytesOf(s.Block, element), from: bytesOf(s.From, element), to: s.To}
	switch s.Action {
	case plan.Send:
		t.reads[0] = t.block
	case plan.Receive, plan.Fetch:
		t.write = t.block
	case plan.ReceiveCombine:
		t.write, t.reads[0] = t.block, t.from
	case plan.Copy:
		t.write, t.reads[0] = t.block, t.from
	case plan.CombineFrom:
		t.write, t.reads[0], t.reads[1] = t.block, t.block, t.from
	case plan.DivideBy:
		t.write, t.reads[0] = t.block, t.block
	case plan.Fold:
		t.reads[0] = t.from
		if slices.Contains(s.To, rank) {
			t.write = t.block
		}
	case plan.Sync:
	}
	return t
}

func bytesOf(b plan.Block, element uint64) span {
	return span{buffer: b.Buffer, off: b.Off * element, len: b.Len * element}
}

// cut divides the steps into phases.
func (g *program) cut() {
	type way struct {
		peer plan.Rank
		send bool
	}
	count := map[way]uint16{}
	lanes := map[plan.Rank]int{}
	now := phase{}
	for i := range g.steps {
		s := &g.steps[i]
		if s.action == plan.Sync {
			now.sync = true
			g.phases = append(g.phases, now)
			now, lanes = phase{}, map[plan.Rank]int{}
			continue
		}
		now.steps++
		switch s.action {
		case plan.Send, plan.Receive, plan.ReceiveCombine:
			at, ok := lanes[s.peer]
			if !ok {
				at = len(now.lanes)
				lanes[s.peer] = at
				now.lanes = append(now.lanes, lane{peer: s.peer})
			}
			w := way{s.peer, s.action == plan.Send}
			s.nth = count[w]
			count[w]++
			if w.send {
				now.lanes[at].sends = append(now.lanes[at].sends, i)
			} else {
				now.lanes[at].receive = append(now.lanes[at].receive, i)
			}
		default:
			now.local = append(now.local, i)
		}
	}
	if now.steps > 0 || len(g.phases) == 0 {
		g.phases = append(g.phases, now)
	}
}
