package plan

// Range is some elements: Len of them from Off on.
type Range struct {
	Off uint64
	Len uint64
}

// Buffer is memory of a rank.
type Buffer uint8

// The buffers. In place, Source and Result are ranges of the same memory.
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

// Action is what a step does.
type Action uint8

// The actions. Send, Receive and ReceiveCombine go over the links between the
// ranks. Fetch, Fold and Sync need memory that all ranks have mapped.
const (
	// Send gives Block to Peer.
	Send Action = iota + 1
	// Receive puts what comes from Peer in the place of Block.
	Receive
	// ReceiveCombine sets Block = Block op what comes from Peer.
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
	// To is whom a Fold gives its result, in ascending order. It may be shared
	// between steps: it is read only.
	To []Rank
}

// Program is the steps of one rank, in order.
type Program []Step
