package window

import (
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Completer learns of the end of an operation.
type Completer interface {
	// Complete is called once, with nil or the first error. It must not wait
	// for another operation.
	Complete(err error)
}

// Offer is what a peer must know to open a buffer.
type Offer struct {
	// Blob means something to the provider alone; at most wire.MaxOffer bytes.
	Blob []byte
	// Files are passed along, where the two are on one host. They stay the
	// exporter's until Export.Close; those that Import gets are its own.
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
	// Done is closed when the provider can't go on, Err says why then.
	Done() <-chan struct{}
	Err() error
	// Close ends the provider. Operations that are under way complete with an
	// error; nothing of it runs when it returns. Windows and exports are closed
	// before or after.
	Close()
}
