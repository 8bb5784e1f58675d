package collective

import "github.com/hmcfs/hmcfs/transport/collective/plan"

// progress tells how far the program of a call has come. The executor advances it, and
// the stager reads it to know which pages the steps are at.
type progress struct {
	prog *program
	// done is the bytes of each step that are done.
	done []uint64
	// lanes are the places in the lanes of the phase, by peer.
	lanes []cursor
	// phase is the number of the one that is run, and entered says that it has begun.
	// local is the step of it that needs no link, left how many steps are not over.
	phase   int
	entered bool
	local   int
	left    int
}

// cursor is a place in a lane: how many of its sends and receives are over.
type cursor struct{ sends, gets int }

// start puts the progress at the beginning of a program.
func (p *progress) start(prog *program) {
	p.prog = prog
	if cap(p.done) < len(prog.steps) {
		p.done = make([]uint64, len(prog.steps))
	}
	p.done = p.done[:len(prog.steps)]
	clear(p.done)
	p.phase, p.entered = 0, false
}

// enter begins a phase.
func (p *progress) enter(f *phase) {
	p.local, p.left, p.entered = 0, f.steps, true
	for i := range f.lanes {
		p.lanes[f.lanes[i].peer] = cursor{}
	}
}

// limit returns the number of bytes of a step that may be done now.
func (p *progress) limit(i int) uint64 {
	s := &p.prog.steps[i]
	n := s.block.len
	for _, w := range s.waits {
		have := p.done[w.step]
		switch {
		case w.follow:
			n = min(n, have)
		case have < p.prog.steps[w.step].block.len:
			return 0
		}
	}
	return n
}

// floor cuts a limit to whole elements where a step combines.
func (p *progress) floor(i int, n uint64) uint64 {
	if p.prog.steps[i].action == plan.Receive {
		return n
	}
	return n - n%p.prog.element
}

// finish notes that a step may be over.
func (p *progress) finish(i int) bool {
	if p.done[i] < p.prog.steps[i].block.len {
		return false
	}
	p.left--
	return true
}
