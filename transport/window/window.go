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
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Completer is notified of the end of an operation.
type Completer interface {
	// Complete is called once, with nil or the first error. It must not wait
	// for another operation.
	Complete(err error)
}

// Offer holds the information that a peer needs to open a buffer.
type Offer struct {
	// Blob is interpreted only by the provider; at most wire.MaxOffer bytes.
	Blob []byte
	// Files are passed to a peer on the same host. They belong to the exporter
	// until Export.Close; those that Import receives belong to it, even if it
	// fails. At most wire.MaxFiles.
	Files []*os.File
}

// Export is a buffer that a peer may access.
type Export interface {
	Offer() Offer
	// Close ends the peer's access as far as the provider can, and releases the
	// buffer. It is called once, after the peer has closed its window, or has
	// ended.
	Close() error
}

// ErrGivenUp ends an operation that the caller no longer wants.
var ErrGivenUp = errors.New("transport: operation canceled by the caller")

// Op is one put or get through a window.
type Op struct {
	// Kind is wire.KindPut or wire.KindGet.
	Kind wire.Kind
	// Local is the local buffer. The caller of Start holds it, and has checked
	// both ranges and the rights.
	Local    *region.Buffer
	LocalOff devices.Offset
	// RemoteOff is relative to the start of the window.
	RemoteOff uint64
	// Size is in bytes, not 0.
	Size devices.Size
	// Waits means that the caller of Start does nothing else until the operation
	// is complete: it may run in the caller's goroutine.
	Waits bool
	// Withdrawn is set when the owner withdraws the window: an operation that
	// checks it may end early, with region.ErrKey.
	Withdrawn *atomic.Bool
	// GivenUp is set when the operation is no longer wanted: one that checks it
	// may end early, with ErrGivenUp. Nil means never.
	GivenUp *atomic.Bool
}

// Window is an open window of a peer's buffer. Its methods may be called from any
// goroutine.
type Window interface {
	// Start starts an operation. done is notified of its end, perhaps before
	// Start returns: then the bytes are in place, at the peer for a put.
	Start(op *Op, done Completer)
	// Close releases the window. When it is called, no operation is in progress
	// and none is started any more.
	Close() error
}

// Mapper is a Window whose bytes can be accessed in place.
type Mapper interface {
	// Map maps the bytes until Close, even if the window is closed before.
	//
	// Errors: devices.ErrUnsupported.
	Map() (Mapping, error)
}

// Mapping is memory of a peer in our address space. The peer may keep writing to
// it, or may have ended; the memory stays until Close.
type Mapping interface {
	Bytes() []byte
	Close() error
}

// Setting describes a session that is being formed.
type Setting struct {
	// Conn is the session's control connection, for inspection only: nothing may
	// be read from it or written to it.
	Conn net.Conn
	// Peer is the other rank.
	Peer wire.Rank
	// Timeout bounds the time to wait for the peer without progress.
	Timeout time.Duration
	Logger  *zap.Logger
}

// Transport is one means of accessing the memory of a peer. Its methods may be
// called from any goroutine, for several sessions at once.
//
//	connecting side                  listening side
//	Propose ──> facts ─────────────> Evaluate
//	         <─── the choice ───────
//	Open ──> Starter.Start ────────> Starter.Handshake ──> Provider
//	Starter.Handshake <───────────── Starter.Start <── Open
type Transport interface {
	// Propose returns the data that the peer needs to decide whether the two can
	// use the transport, at most wire.MaxFacts bytes; or an error with the
	// reason, in one line, why this side can't.
	Propose(s Setting) ([]byte, error)
	// Evaluate returns the reason why a proposal of the peer, which is not trusted,
	// can't be accepted; nil if it can.
	Evaluate(s Setting, facts []byte) error
	// Open starts our side of a session. Handshake or Close ends the returned Starter.
	Open(s Setting) (Starter, error)
}

// Starter is one side of a session before it knows the other.
type Starter interface {
	// Start returns the offer for the peer's Handshake. The blob has at most
	// wire.MaxStart bytes, and the files belong to the starter until Handshake or
	// Close.
	Start() Offer
	// Handshake makes the provider. The offer comes from the peer, and is not trusted;
	// its files belong to the callee, even if it fails.
	Handshake(peer Offer) (Provider, error)
	// Close ends a starter that will not be used.
	Close()
}

// Tags is a Provider that carries tags itself, faster than the control
// connection. The sender of a tag has waited for the operations before it.
type Tags interface {
	// SendTag sends a tag. It returns when the tag is on its way.
	//
	// Errors: the context's, in which case nothing was sent; the provider's Err.
	SendTag(ctx context.Context, t wire.Tag) error
	// RecvTag returns the next tag. Tags that arrived before the provider's end
	// are still returned after it.
	RecvTag(ctx context.Context) (wire.Tag, error)
}

// Provider makes windows for one session. Its methods may be called from any
// goroutine.
type Provider interface {
	// Export prepares a buffer for the peer. The provider holds it until
	// Export.Close.
	//
	// Errors: devices.ErrUnsupported for a buffer that only the data connections
	// can access.
	Export(b *region.Buffer, rights wire.Rights) (Export, error)
	// Import opens a buffer that the peer has exported: size and rights are those
	// of the key. The offer comes from the peer, and is not trusted.
	Import(o Offer, size devices.Size, rights wire.Rights) (Window, error)
	// Done is closed when the provider can't continue; Err then returns the
	// reason. If an operation fails because the peer has ended, Err reports that
	// before the operation completes.
	Done() <-chan struct{}
	Err() error
	// Close ends the provider. Pending operations complete with an error; when it
	// returns nothing of the provider runs. Windows and exports are closed before
	// or after.
	Close()
}
