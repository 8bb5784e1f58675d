package fabric

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Errors that callers distinguish.
var (
	// ErrLink reports that a link has ended; a LinkError names the peer.
	ErrLink = errors.New("fabric: link lost")
	// ErrUnmapped reports memory that not all ranks can map.
	ErrUnmapped = errors.New("fabric: memory can't be mapped by all ranks")
	// ErrInterrupted reports a wait that Interrupt has ended.
	ErrInterrupted = errors.New("fabric: interrupted")
	// ErrProtocol reports that the ranks do different things where all must do the same.
	ErrProtocol = errors.New("fabric: the ranks perform different operations")
	// ErrClosed reports that the fabric was closed locally.
	ErrClosed = errors.New("fabric: closed")
)

// Places describes where the ranks are. It does not change.
type Places interface {
	Rank() plan.Rank
	Size() int
	// Nodes returns the host of each rank, as in plan.Shape; Mapped returns
	// plan.Shape.Mapped.
	Nodes() []int
	Mapped() bool
}

// Fabric connects ranks. Its methods are called by one goroutine at a time, except for
// Close and Interrupt. It has a single user, since the ranks count bytes and rendezvous in
// step: a group uses a Duplicate.
type Fabric interface {
	Places
	// Link returns the stream with a peer, always the same one, or nil for our own rank.
	// After a loss Reform restores the link.
	Link(peer plan.Rank) Link
	// Signals returns the counters of the ranks of this node, or nil where Mapped is false.
	Signals() Signals
	// Share makes a buffer of host memory visible to the other ranks of the node. All ranks
	// call it in the same order, each with its own buffer.
	//
	// Errors: ErrUnmapped at every rank if any rank can't share or map the memory.
	Share(ctx context.Context, b *region.Buffer) (Shared, error)
	// Park sleeps until one of the links in want can make progress, the context ends or
	// Interrupt is called. It polls for a while before it sleeps, and may return early. It
	// does not allocate.
	Park(ctx context.Context, want []Want) error
	// Interrupt makes a pending Park, Await, Share or Reform return, or else the next one:
	// Park without an error, the others with ErrInterrupted.
	Interrupt()
	// Reform makes all links anew, together with the other ranks, which must call it too:
	// when a rank enters it, the others lose their links with that rank. Bytes in transit
	// are dropped: every link is empty afterwards. Counters keep their values.
	//
	// Errors: a MissingError, at once for ranks that are dead, otherwise for those that do
	// not come in time.
	Reform(ctx context.Context) error
	// Duplicate makes an independent fabric of the same ranks, with links, counters and
	// shared memory of its own. All ranks call it in the same order, one goroutine of a
	// rank at a time, also while other duplicates are in use.
	//
	// Errors: a MissingError for ranks that do not come in time; Duplicate can be called
	// again after it.
	Duplicate(ctx context.Context) (Fabric, error)
	// Close ends all links, and closes the fabrics that Duplicate has made of this one.
	Close() error
}

// Want names a link to wait for.
type Want struct {
	Peer plan.Rank
	// Send waits for room, Receive for bytes.
	Send    bool
	Receive bool
}

// Link is a stream of bytes in each direction. Its methods neither block nor allocate.
type Link interface {
	// TrySend sends as much of head and then body as there is room for, and returns the
	// number of bytes. 0 without an error means that there is no room.
	//
	// Errors: ErrLink.
	TrySend(head, body []byte) (int, error)
	// TrySendZeroCopy is TrySend without the obligation to copy body: body must not change until
	// the peer has received it, and the unsent rest of it must be what is sent next.
	//
	// Errors: ErrLink.
	TrySendZeroCopy(head, body []byte) (int, error)
	// TryReceive receives the bytes that have arrived, up to the length of p. 0 without an
	// error means that there are none.
	//
	// Errors: ErrLink, once everything that arrived before has been received.
	TryReceive(p []byte) (int, error)
}

// Signals are counters, one for each rank of the node. A counter is set by its owner only;
// a rank that reads a value also sees everything that its owner wrote to memory before.
type Signals interface {
	// Arrive sets our own counter, which must only grow, wakes the ranks that wait for it, and
	// then polls briefly for the counters of all ranks to be as high. It reports false if they
	// are not yet: Await waits for longer.
	Arrive(value uint64) bool
	// Get returns the counter of a rank.
	Get(of plan.Rank) uint64
	// Await waits until the counter of a rank is at least value. It does not allocate.
	//
	// Errors: the context's; ErrLink for a rank that has ended; ErrInterrupted.
	Await(ctx context.Context, of plan.Rank, value uint64) error
}

// Shared holds a buffer of each rank of the node.
type Shared interface {
	// Bytes returns the buffer of a rank; for our own rank this is our own buffer. The
	// slice is valid until Close.
	Bytes(of plan.Rank) []byte
	// Close unmaps the other ranks' buffers. Our own stays.
	Close() error
}
