package plan

import "slices"

// ZeroCopy reports for each step of a rank's program whether it is a Send whose elements
// need not be copied: until the peer has received them, they are not overwritten, except by
// values that depend on the peer having received them. It does not consider what happens
// after the last step, or in another plan.
//
// It reasons about single elements, as steps may follow each other element by element, and
// may miss some sends that qualify.
func (p *Plan) ZeroCopy(r Rank) []bool {
	l := zeroCopyCheck{plan: p, programs: make([]Program, p.Task.Ranks)}
	mine := l.program(r)
	out := make([]bool, len(mine))
	for i := range mine {
		out[i] = mine[i].Action == Send && l.allows(spot{r, i})
	}
	return out
}

// zeroCopyCheck holds the programs inspected so far.
type zeroCopyCheck struct {
	plan     *Plan
	programs []Program
}

// spot is a step of a rank.
type spot struct {
	rank Rank
	step int
}

func (l *zeroCopyCheck) program(r Rank) Program {
	if l.programs[r] == nil {
		l.programs[r] = l.plan.Program(r)
	}
	return l.programs[r]
}

func (l *zeroCopyCheck) at(p spot) *Step { return &l.program(p.rank)[p.step] }

// allows checks the first step that overwrites the elements of a Send.
func (l *zeroCopyCheck) allows(send spot) bool {
	s := l.at(send)
	for i := send.step + 1; i < len(l.program(send.rank)); i++ {
		writer := spot{send.rank, i}
		if !l.at(writer).writes(s.Block) {
			continue
		}
		received, ok := l.other(send)
		return ok && l.at(writer).Block == s.Block && l.comes(writer, received)
	}
	return true
}

// writes reports whether a step overwrites any of the elements.
func (s *Step) writes(b Block) bool {
	touches := s.touches()
	return slices.ContainsFunc(touches[:], func(t touch) bool { return t.write && t.Overlaps(b) })
}

// comes reports whether each element that the step from writes becomes available only after
// step to of any rank has processed the same element: it traces the elements back.
func (l *zeroCopyCheck) comes(from, to spot) bool {
	for range len(l.programs) * 2 {
		if from == to {
			return true
		}
		if !l.at(from).receives() {
			return false
		}
		send, ok := l.other(from)
		if !ok || l.at(send).Block.Len != l.at(from).Block.Len {
			return false
		}
		if from, ok = l.writer(send); !ok {
			return false
		}
	}
	return false
}

func (s *Step) receives() bool { return s.Action == Receive || s.Action == ReceiveCombine }

// writer returns the step that produced the elements of a Send, apart from a division.
func (l *zeroCopyCheck) writer(send spot) (spot, bool) {
	block := l.at(send).Block
	for i := send.step - 1; i >= 0; i-- {
		w := spot{send.rank, i}
		switch s := l.at(w); {
		case !s.writes(block):
		case s.Block != block:
			return w, false
		case s.Action != DivideBy:
			return w, true
		}
	}
	return spot{}, false
}

// other returns the other end of a message.
func (l *zeroCopyCheck) other(p spot) (spot, bool) {
	s := l.at(p)
	nth := 0
	for _, e := range l.program(p.rank)[:p.step] {
		if e.Peer == s.Peer && (e.Action == Send) == (s.Action == Send) && (e.Action == Send || e.receives()) {
			nth++
		}
	}
	for i, e := range l.program(s.Peer) {
		if e.Peer != p.rank || (e.Action == Send) == (s.Action == Send) || e.Action != Send && !e.receives() {
			continue
		}
		if nth == 0 {
			return spot{s.Peer, i}, true
		}
		nth--
	}
	return spot{}, false
}
