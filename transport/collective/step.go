package collective

import "github.com/hmcfs/hmcfs/transport/collective/plan"

// span is a plan.Block in bytes.
type span = plan.Block

// step is a plan.Step in bytes, with the steps it waits for.
type step struct {
	plan.Step
	// write and reads are the spans that it accesses in our own memory.
	write span
	reads [2]span
	// waits are the earlier steps that must be complete or may be followed byte by byte.
	waits []plan.Wait
	// nth is the index of the message among those of its link and direction.
	nth uint16
	// zeroCopy reports that the step may be sent without copying: see plan.Plan.ZeroCopy.
	zeroCopy bool
}

// spans returns the spans that a step accesses, reads first.
func (s *step) spans() [3]span { return [...]span{s.reads[0], s.reads[1], s.write} }

// phase holds the steps up to a Sync.
type phase struct {
	lanes []lane
	// local are the steps that need no link.
	local []int
	steps int
	// sync reports that a Sync follows.
	sync bool
}

// lane holds the messages with one peer, in order.
type lane struct {
	peer           plan.Rank
	sends, receive []int
}
