package window

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Completer learns of the end of an operation.
type Completer interface {
	// Complete is called once, with nil or the first error. It must not wait
	// for another operation.
	Complete(err error)
}

// Offer has what a peer must know to open a buffer.
type Offer struct {
	// Blob means something to the provider alone; at most wire.MaxOffer bytes.
	Blob []byte
	// Files are passed along, where the two are on one host. They stay the
	// exporter's until Export.Close; those that Import gets are its own, also
	// when it fails. At most wire.MaxFiles.
	Files []*os.File
}

// Export is a buffer that a peer may reach.
type Export interface {
	Offer() Offer
	// Close ends the peer's reach as far as the provider can, and lets the
	// buffer go. It is called once, after the peer has closed its window, or
	// has ended.
	Close() error
}

// ErrGivenUp ends an operation that nobody wants any more.
var ErrGivenUp = errors.New("transport: the operation was given up")

// Op is one put or get through a window.
type Op struct {
	// Kind is wire.KindPut or wire.KindGet.
	Kind wire.Kind
	// Local is our end. Whoever starts the operation holds it, and has checked
	// both ranges and the rights.
	Local    *region.Buffer
	LocalOff devices.Offset
	// RemoteOff is counted from the begin of the window.
	RemoteOff uint64
	// Size is in bytes, not 0.
	Size devices.Size
	// Waits says that who starts the operation does nothing else until it is
	// complete: it may be done in its goroutine.
	Waits bool
	// Withdrawn is set when the owner takes the window back: an operation that
	// looks at it may end early, with region.ErrKey.
	Withdrawn *atomic.Bool
	// GivenUp is set when nobody wants the operation any more: one that looks
	// at it may end early, with ErrGivenUp. Nil is never.
	GivenUp *atomic.Bool
}

// Window is a peer's buffer that is open here. Its methods may be called from
// any goroutine.
type Window interface {
	// Start begins an operation. done is told of its end, perhaps before Start
	// returns: then the bytes are in place, at the peer for a put.
	Start(op *Op, done Completer)
	// Close gives the window back. Nothing is under way and nothing begins any
	// more when it is called.
	Close() error
}

// Mapper is a Window whose bytes can be seen in place.
type Mapper interface {
	// Map shows the bytes until Close, also when the window is closed before.
	//
	// Errors: devices.ErrUnsupported.
	Map() (Mapping, error)
}

// Mapping is memory of a peer in our address space. The peer keeps writing to it
// and may be gone; the memory stays until Close.
type Mapping interface {
	Bytes() []byte
	Close() error
}

// Setting describes a session that is being made to a transport.
type Setting struct {
	// Conn is the session's control connection, to look at: nothing may be read
	// from it or written to it.
	Conn net.Conn
	// Local and Peer are the two ranks.
	Local, Peer wire.Rank
	// Engine moves bytes from and to device memory. It is borrowed.
	Engine *transport.Engine
	// Timeout bounds the time that the peer lets us wait without anything moving.
	Timeout time.Duration
	Logger  *zap.Logger
}

// Transport is one way to reach the memory of a peer. Its methods may be called
// from any goroutine, for several sessions at once.
//
//	who connects                     who listens
//	Propose ──> facts ─────────────> Judge
//	         <─── the choice ───────
//	Open ──> Starter.Start ────────> Starter.Meet ──> Provider
//	Starter.Meet <────────────────── Starter.Start <── Open
type Transport interface {
	// Propose returns what the peer must know to judge whether the two can use
	// it, at most wire.MaxFacts bytes; or an error that says in one line why we
	// can't.
	Propose(s Setting) ([]byte, error)
	// Judge says why a proposal of the peer, which is not trusted, can't be
	// taken; nil where it can.
	Judge(s Setting, facts []byte) error
	// Open begins our side of a session. Meet or Close ends what it returns.
	Open(s Setting) (Starter, error)
}

// Starter is one side of a session before it knows the other.
type Starter interface {
	// Start returns what the peer's Meet gets. The blob has at most wire.MaxStart
	// bytes, and the files stay the starter's until Meet or Close.
	Start() Offer
	// Meet makes the provider. The offer comes from the peer, and is not
	// trusted; its files are the callee's, also when it fails.
	Meet(peer Offer) (Provider, error)
	// Close ends a starter that will not meet anybody.
	Close()
}

// Tags is a Provider that carries tags by itself, and faster
// than the control connection. Whoever sends a tag has waited for the
// operations before it.
type Tags interface {
	// SendTag sends a tag. It returns when the tag is on its way.
	//
	// Errors: the context's, and then nothing was sent; the provider's Err.
	SendTag(ctx context.Context, t wire.Tag) error
	// RecvTag returns the next tag. What came before the provider's end is
	// still received after it.
	RecvTag(ctx context.Context) (wire.Tag, error)
}

// Provider makes windows for one session. Its methods may be called from any
// goroutine.
type Provider interface {
	// Export makes a buffer ready for the peer. The provider holds it until
	// Export.Close.
	//
	// Errors: devices.ErrUnsupported for a buffer that only the data
	// connections reach.
	Export(b *region.Buffer, rights wire.Rights) (Export, error)
	// Import opens what the peer has exported: size and rights are the key's.
	// The offer comes from the peer, and is not trusted.
	Import(o Offer, size devices.Size, rights wire.Rights) (Window, error)
	// Done is closed when the provider can't go on, Err says why then. When an
	// operation fails because the peer is gone, Err says so before it completes.
	Done() <-chan struct{}
	Err() error
	// Close ends the provider. Operations that are under way complete with an
	// error; nothing of it runs when it returns. Windows and exports are closed
	// before or after.
	Close()
}
