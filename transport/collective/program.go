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

func newProgram(p plan.Program, rank plan.Rank, element uint64, st staging) *program {
	g := &program{element: element}
	for i := range p {
		g.steps = append(g.steps, translate(p[i], rank, element))
	}
	for i, waits := range p.Waits() {
		g.steps[i].waits = waits
	}
	g.cut()
	g.paging = newPaging(g.steps, g.phases, st)
	return g
}

func translate(s plan.Step, rank plan.Rank, element uint64) step {
	s.Block, s.From = bytesOf(s.Block, element), bytesOf(s.From, element)
	t := step{Step: s}
	switch s.Action {
	case plan.Send:
		t.reads[0] = s.Block
	case plan.Receive, plan.Fetch:
		t.write = s.Block
	case plan.ReceiveCombine, plan.Copy:
		t.write, t.reads[0] = s.Block, s.From
	case plan.CombineFrom:
		t.write, t.reads[0], t.reads[1] = s.Block, s.Block, s.From
	case plan.DivideBy:
		t.write, t.reads[0] = s.Block, s.Block
	case plan.Fold:
		t.reads[0] = s.From
		if slices.Contains(s.To, rank) {
			t.write = s.Block
		}
	case plan.Sync:
	}
	return t
}

func bytesOf(b plan.Block, element uint64) span {
	return span{Buffer: b.Buffer, Range: plan.Range{Off: b.Off * element, Len: b.Len * element}}
}

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
		if s.Action == plan.Sync {
			now.sync = true
			g.phases = append(g.phases, now)
			now, lanes = phase{}, map[plan.Rank]int{}
			continue
		}
		now.steps++
		switch s.Action {
		case plan.Send, plan.Receive, plan.ReceiveCombine:
			at, ok := lanes[s.Peer]
			if !ok {
				at = len(now.lanes)
				lanes[s.Peer] = at
				now.lanes = append(now.lanes, lane{peer: s.Peer})
			}
			w := way{s.Peer, s.Action == plan.Send}
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
