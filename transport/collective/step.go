package collective

import "github.com/hmcfs/hmcfs/transport/collective/plan"

// span is some bytes of a buffer.
type span struct {
	buffer plan.Buffer
	off    uint64
	len    uint64
}

func (s span) end() uint64 { return s.off + s.len }

// meets says whether two spans have bytes in common.
func (s span) meets(o span) bool {
	return s.buffer == o.buffer && s.len > 0 && o.len > 0 && s.off < o.end() && o.off < s.end()
}

// step is a plan.Step in bytes, and what it waits for.
type step struct {
	action plan.Action
	peer   plan.Rank
	// block is the step's Block, from its From.
	block, from span
	to          []plan.Rank
	// write and reads are what it touches here.
	write span
	reads [2]span
	waits []wait
	// nth is the number of a message among those of its link and direction.
	nth uint16
	// lend says that it need not be copied to be sent: see plan.Lendable.
	lend bool
}

// wait is an earlier step that has to be over or, where follow is set, is
// followed byte by byte.
type wait struct {
	step   int
	follow bool
}

// spans returns what a step touches: what it reads first.
func (s *step) spans() [3]span { return [...]span{s.reads[0], s.reads[1], s.write} }

// phase is the steps up to a Sync.
type phase struct {
	lanes []lane
	// local are the steps that need no link.
	local []int
	steps int
	// sync says that a Sync follows.
	sync bool
}

// lane is the messages with one peer, in order.
type lane struct {
	peer           plan.Rank
	sends, receive []int
}
