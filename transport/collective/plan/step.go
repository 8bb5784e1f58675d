package plan

import "fmt"

// Range is some elements: Len of them from Off on.
type Range struct {
	Off uint64 `json:"off"`
	Len uint64 `json:"len"`
}

// Buffer is memory of a rank.
type Buffer uint8

// The buffers. In place, Source and Result are ranges of the same memory, and
// programs speak of the larger one alone: see Task.Place.
const (
	Source Buffer = iota + 1
	Result
	// Scratch is memory that the plan needs besides: Plan.Scratch elements.
	Scratch
)

// Block is some elements of a buffer.
type Block struct {
	Buffer Buffer
	Range
}

// Action is the work of a step.
type Action uint8

// The actions. Send, Receive and ReceiveCombine go over the links between the
// ranks. Fetch, Fold and Sync need memory that all ranks have mapped.
const (
	// Send gives Block to Peer.
	Send Action = iota + 1
	// Receive puts what comes from Peer in the place of Block.
	Receive
	// ReceiveCombine sets Block = From op what comes from Peer. From is Block, or
	// apart from it.
	ReceiveCombine
	// Copy puts From in the place of Block.
	Copy
	// CombineFrom sets Block = Block op From.
	CombineFrom
	// DivideBy divides Block by the number of ranks: the end of elem.Avg.
	DivideBy
	// Fetch puts the elements From of Peer in the place of Block.
	Fetch
	// Fold combines the elements From of all ranks, in the order of the ranks,
	// divides them where the task's operation is elem.Avg, and puts them in the
	// place of the elements Block of each rank of To. From and Block may be the
	// same elements.
	Fold
	// Sync waits until every rank of the plan has come as far.
	Sync
)

// Step is one thing that a rank does.
type Step struct {
	Action Action
	Peer   Rank
	Block  Block
	From   Block
	// To are the ranks that a Fold gives its result, in ascending order. It may be shared
	// between steps: it is read only.
	To []Rank
}

// Program is the steps of one rank, in order. But for a Sync, each has at least
// one element.
type Program []Step

// String is the action's name: "send".
func (a Action) String() string {
	names := [...]string{
		Send: "send", Receive: "receive", ReceiveCombine: "receive-combine", Copy: "copy", CombineFrom: "combine",
		DivideBy: "divide", Fetch: "fetch", Fold: "fold", Sync: "sync",
	}
	if a == 0 || int(a) >= len(names) {
		return fmt.Sprintf("action %d", uint8(a))
	}
	return names[a]
}

// String is the buffer's name: "source".
func (b Buffer) String() string {
	names := [...]string{Source: "source", Result: "result", Scratch: "scratch"}
	if b == 0 || int(b) >= len(names) {
		return fmt.Sprintf("buffer %d", uint8(b))
	}
	return names[b]
}

// End is the first element behind the range.
func (r Range) End() uint64 { return r.Off + r.Len }

// Overlaps says whether two ranges have an element in common.
func (r Range) Overlaps(o Range) bool {
	return r.Len > 0 && o.Len > 0 && r.Off < o.End() && o.Off < r.End()
}

// Overlaps says whether two blocks have an element in common.
func (b Block) Overlaps(o Block) bool { return b.Buffer == o.Buffer && b.Range.Overlaps(o.Range) }

// String is the block as "result[10:20]".
func (b Block) String() string { return fmt.Sprintf("%v[%d:%d]", b.Buffer, b.Off, b.End()) }

// String is the step in words.
func (s Step) String() string {
	switch s.Action {
	case Send:
		return fmt.Sprintf("send %v to %d", s.Block, s.Peer)
	case Receive:
		return fmt.Sprintf("receive %v from %d", s.Block, s.Peer)
	case ReceiveCombine:
		return fmt.Sprintf("receive %v = %v op rank %d's", s.Block, s.From, s.Peer)
	case Copy, CombineFrom:
		return fmt.Sprintf("%v %v from %v", s.Action, s.Block, s.From)
	case Fetch:
		return fmt.Sprintf("fetch %v from %v of %d", s.Block, s.From, s.Peer)
	case Fold:
		return fmt.Sprintf("fold %v of all into %v of %v", s.From, s.Block, s.To)
	case DivideBy:
		return fmt.Sprintf("divide %v", s.Block)
	case Sync:
	}
	return s.Action.String()
}
