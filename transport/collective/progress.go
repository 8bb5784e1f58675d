package collective

import "github.com/hmcfs/hmcfs/transport/collective/plan"

// progress is the progress of a call's program. The executor advances it, and the stager
// reads it to determine which pages the steps use.
type progress struct {
	prog *program
	// done is the number of bytes of each step that are done.
	done []uint64
	// lanes are the positions in the lanes of the phase, by peer.
	lanes []cursor
	// phase is the index of the current phase, and entered reports that it has begun. local
	// is the index of its next local step, left the number of steps that are not complete.
	phase   int
	entered bool
	local   int
	left    int
}

// cursor is a position in a lane: the numbers of its completed sends and receives.
type cursor struct{ sends, gets int }

// start resets the progress to the beginning of a program.
func (p *progress) start(prog *program) {
	p.prog = prog
	if cap(p.done) < len(prog.steps) {
		p.done = make([]uint64, len(prog.steps))
	}
	p.done = p.done[:len(prog.steps)]
	clear(p.done)
	p.phase, p.entered = 0, false
}

func (p *progress) enter(f *phase) {
	p.local, p.left, p.entered = 0, f.steps, true
	for i := range f.lanes {
		p.lanes[f.lanes[i].peer] = cursor{}
	}
}

// limit returns the number of bytes of a step that may be done now.
func (p *progress) limit(i int) uint64 {
	s := &p.prog.steps[i]
	n := s.Block.Len
	for _, w := range s.waits {
		have := p.done[w.Step]
		switch {
		case w.Follow:
			n = min(n, have)
		case have < p.prog.steps[w.Step].Block.Len:
			return 0
		}
	}
	return n
}

// floor rounds a limit down to whole elements for a step that combines.
func (p *progress) floor(i int, n uint64) uint64 {
	if p.prog.steps[i].Action == plan.Receive {
		return n
	}
	return n - n%p.prog.element
}

// finish reports whether a step is complete, and if so counts it.
func (p *progress) finish(i int) bool {
	if p.done[i] < p.prog.steps[i].Block.Len {
		return false
	}
	p.left--
	return true
}
