package fabric

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// What callers tell apart.
var (
	// ErrLink is a link that has ended, as a LinkError, which names the peer.
	ErrLink = errors.New("fabric: link lost")
	// ErrUnmapped is memory that not all ranks can map.
	ErrUnmapped = errors.New("fabric: memory can't be mapped by all ranks")
	// ErrInterrupted is a wait that Interrupt has ended.
	ErrInterrupted = errors.New("fabric: interrupted")
	// ErrProtocol is ranks that do different things together.
	ErrProtocol = errors.New("fabric: the ranks do different things")
	// ErrClosed is a fabric that was closed here.
	ErrClosed = errors.New("fabric: closed")
)

// Places says who is where. It does not change.
type Places interface {
	Rank() plan.Rank
	Size() int
	// Nodes says which host each rank is on, as plan.Shape has it; Mapped is
	// plan.Shape.Mapped.
	Nodes() []int
	Mapped() bool
}

// Fabric joins ranks. Its methods are called by one goroutine at a time, but for
// Close and Interrupt. It has a single user, since the ranks count bytes and meetings
// in step: a group uses a Duplicate.
type Fabric interface {
	Places
	// Link is the stream with a peer, the same one each time, and nil with
	// ourselves. A link that was lost is there again after Reform.
	Link(peer plan.Rank) Link
	// Signals are the counters of the ranks of this node; nil where Mapped is
	// false.
	Signals() Signals
	// Share makes a buffer of host memory visible to the other ranks of the
	// node. All ranks call it in the same order, each with a buffer of its own.
	//
	// Errors: ErrUnmapped, at every rank, where one of them can't.
	Share(ctx context.Context, b *region.Buffer) (Shared, error)
	// Park sleeps until one of the links in want may go on, the context ends or
	// Interrupt is called. It looks for a while before it sleeps, and may return
	// early. It allocates nothing.
	Park(ctx context.Context, want []Want) error
	// Interrupt has a Park, Await, Share or Reform that is under way, or the next
	// one, return: Park without an error, the others with ErrInterrupted.
	Interrupt()
	// Reform makes all links anew, together with the other ranks, which call it
	// too: the links with a rank that is in it are lost for the others. What was on its way is gone: every link is empty then. Counters
	// stay as they are.
	//
	// Errors: a MissingError, at once for ranks that are dead, else for those that
	// do not come in time.
	Reform(ctx context.Context) error
	// Duplicate makes a fabric of the same ranks that has links, counters and shared
	// memory of its own: the two are independent. All ranks
	// call it in the same order, one goroutine of a rank at a time, also while
	// others made by it are in use.
	//
	// Errors: a MissingError for ranks that do not come in time, after which it can
	// be called again.
	Duplicate(ctx context.Context) (Fabric, error)
	// Close ends all links, and closes what Duplicate has made of the fabric.
	Close() error
}

// Want is a link that somebody waits for.
type Want struct {
	Peer plan.Rank
	// Send and Receive say for what: room, or bytes.
	Send    bool
	Receive bool
}

// Link is a stream of bytes in each direction. It does not block and allocates
// nothing.
type Link interface {
	// TrySend sends what there is room for of head and then body, and says how
	// many bytes that was. 0 without an error is no room.
	//
	// Errors: ErrLink.
	TrySend(head, body []byte) (int, error)
	// TryLend is TrySend that need not copy body: until the peer has received it,
	// body stays as it is, and what is left of it is what is sent next.
	//
	// Errors: ErrLink.
	TryLend(head, body []byte) (int, error)
	// TryReceive receives what has come, up to the length of p. 0 without an
	// error is nothing.
	//
	// Errors: ErrLink, once everything that came before has been received.
	TryReceive(p []byte) (int, error)
}

// Signals are counters, one for each rank of the node. Only its owner sets one,
// and whoever sees a value sees all that its owner wrote to memory before.
type Signals interface {
	// Set sets our own counter, which only grows, and wakes who waits for it.
	Set(value uint64)
	// Meet is Set, and looks for a moment whether the counters of all ranks are
	// as high. False is not yet: Await says more.
	Meet(value uint64) bool
	// Get is the counter of a rank.
	Get(of plan.Rank) uint64
	// Await waits until the counter of a rank is at least value. It allocates
	// nothing.
	//
	// Errors: the context's; ErrLink for a rank that is gone; ErrInterrupted.
	Await(ctx context.Context, of plan.Rank, value uint64) error
}

// Shared is a buffer of each rank of the node.
type Shared interface {
	// Bytes are those of a rank's buffer: our own buffer for our own rank. They
	// are good until Close.
	Bytes(of plan.Rank) []byte
	// Close unmaps the others' buffers. Our own stays.
	Close() error
}
