package plan

import "fmt"

// Range is a range of elements: Len of them, starting at Off.
type Range struct {
	Off uint64 `json:"off"`
	Len uint64 `json:"len"`
}

// Buffer names a part of a rank's memory.
type Buffer uint8

// The buffers. In place, Source and Result are ranges of the same memory, and programs
// refer only to the larger one: see Task.Place.
const (
	Source Buffer = iota + 1
	Result
	// Scratch is additional memory that the plan needs: Plan.Scratch elements.
	Scratch
)

// Block is a range of elements of a buffer.
type Block struct {
	Buffer Buffer
	Range
}

// Action is the operation of a step.
type Action uint8

// The actions. Send, Receive and ReceiveCombine use the links between the ranks. Fetch,
// Fold and Sync need memory that all ranks have mapped.
const (
	// Send sends Block to Peer.
	Send Action = iota + 1
	// Receive stores the elements from Peer in Block.
	Receive
	// ReceiveCombine sets Block = From op the elements from Peer. From is Block, or does
	// not overlap it.
	ReceiveCombine
	// Copy copies From to Block.
	Copy
	// CombineFrom sets Block = Block op From.
	CombineFrom
	// DivideBy divides Block by the number of ranks: the last step of elem.Avg.
	DivideBy
	// Fetch copies the elements From of Peer to Block.
	Fetch
	// Fold combines the elements From of all ranks, in the order of the ranks, divides them
	// if the task's operation is elem.Avg, and stores them in Block of each rank of To.
	// From and Block may be the same elements.
	Fold
	// Sync waits until every rank of the plan has reached it.
	Sync
)

// Step is one operation of a rank.
type Step struct {
	Action Action
	Peer   Rank
	Block  Block
	From   Block
	// To lists the ranks that receive the result of a Fold, in ascending order. Steps may
	// share it: it is read only.
	To []Rank
}

// Program lists the steps of one rank, in order. Each, except a Sync, has at least one
// element.
type Program []Step

// String returns the action's name, such as "send".
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

// String returns the buffer's name, such as "source".
func (b Buffer) String() string {
	names := [...]string{Source: "source", Result: "result", Scratch: "scratch"}
	if b == 0 || int(b) >= len(names) {
		return fmt.Sprintf("buffer %d", uint8(b))
	}
	return names[b]
}

// End returns the offset after the last element.
func (r Range) End() uint64 { return r.Off + r.Len }

// Overlaps reports whether two ranges have an element in common.
func (r Range) Overlaps(o Range) bool {
	return r.Len > 0 && o.Len > 0 && r.Off < o.End() && o.Off < r.End()
}

// Overlaps reports whether two blocks have an element in common.
func (b Block) Overlaps(o Block) bool { return b.Buffer == o.Buffer && b.Range.Overlaps(o.Range) }

// String returns the block, as "result[10:20]".
func (b Block) String() string { return fmt.Sprintf("%v[%d:%d]", b.Buffer, b.Off, b.End()) }

// String describes the step.
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
