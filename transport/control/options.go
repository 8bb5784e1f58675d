package control

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// The defaults of Options.
const (
	DefaultChunk            = 1 << 20
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultMaxHandshakes    = 256
	DefaultTimeout          = 30 * time.Second
)

// minSecret is the minimum size of a secret, in bytes: that of a key that can't
// be guessed.
const minSecret = 16

// Options configures how a rank connects and listens.
type Options struct {
	// Rank is our own rank.
	Rank wire.Rank
	// Secret is known to all ranks of the job, at least 16 bytes. It may be empty
	// with TLS. Without TLS it encrypts the traffic over TCP.
	Secret []byte
	// Plain leaves connections over TCP unencrypted after the handshake. Both
	// sides must have it, and neither TLS.
	Plain bool
	// TLS encrypts, if not nil. Both sides must present a certificate that the
	// other's roots accept (Certificates, RootCAs and ClientCAs are used) and
	// that is for the DNS name of its rank: see PeerName.
	TLS *tls.Config
	// PeerName returns the DNS name in a rank's certificate; empty means that the
	// name of the rank is not known. Nil means RankName. It may be called from
	// any goroutine, and so may PeerRank.
	PeerName func(wire.Rank) string
	// PeerRank returns the rank of a DNS name, for a connecting peer whose name
	// PeerName does not know: the certificate then supplies the name. Nil turns
	// such a peer away.
	PeerRank func(name string) wire.Rank
	// Epochs generates the epochs of connections. Nil creates a source that only
	// these options use.
	Epochs *Epochs
	// Chunk is the maximum payload of one data frame, in bytes, from 4 KiB to 64
	// MiB. The smaller value of the two sides is used. Default 1 MiB.
	Chunk uint32
	// HandshakeTimeout bounds the time that a peer has to authenticate. Default
	// 10 s.
	HandshakeTimeout time.Duration
	// Timeout is the approximate time that a TCP connection survives while the
	// peer's machine answers nothing. Default 30 s.
	Timeout time.Duration
	// MaxHandshakes bounds the number of handshakes in progress. With one more,
	// one is dropped that has not yet sent a whole HELLO, or, if there is none or
	// the others have more than three quarters of the places, one of the others:
	// the oldest of the source (an IPv4 address, 64 bits of an IPv6 one) that has
	// most. Default 256.
	MaxHandshakes int
	// Logger receives a line for each peer that is turned away, whose message is
	// one of a few: strangers determine how often, so limit it by message. Nil
	// means no log.
	Logger *zap.Logger
}

// EnsureDefaults fills in the fields left at their zero value.
func (o *Options) EnsureDefaults() {
	o.Epochs = cmp.Or(o.Epochs, &Epochs{})
	o.Chunk = cmp.Or(o.Chunk, DefaultChunk)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, DefaultHandshakeTimeout)
	if o.PeerName == nil {
		o.PeerName = RankName
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxHandshakes = cmp.Or(o.MaxHandshakes, DefaultMaxHandshakes)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	if len(o.Secret) < minSecret && (o.TLS == nil || len(o.Secret) != 0) {
		faults = append(faults, fmt.Errorf("control: a secret of %d bytes; use %d or more, or TLS", len(o.Secret), minSecret))
	}
	if o.Plain && o.TLS != nil {
		faults = append(faults, errors.New("control: TLS and plain exclude each other"))
	}
	if o.Chunk < wire.MinChunk || o.Chunk > wire.MaxChunk {
		faults = append(faults, fmt.Errorf("control: chunk of %d bytes; use %d to %d", o.Chunk, wire.MinChunk, wire.MaxChunk))
	}
	if o.HandshakeTimeout < 0 || o.MaxHandshakes < 0 {
		faults = append(faults, fmt.Errorf("control: handshake timeout %v and %d handshakes must not be negative", o.HandshakeTimeout, o.MaxHandshakes))
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("control: timeout %v must not be negative", o.Timeout))
	}
	return errors.Join(faults...)
}

// RankName returns the DNS name that the certificate of a rank must have if
// Options.PeerName is nil.
func RankName(r wire.Rank) string { return fmt.Sprintf("rank-%d.hmcfs", uint32(r)) }

// Epochs generates epochs, each larger than the last, and than those of earlier
// processes as long as the clock is not set back. The zero value is ready.
type Epochs struct{ last atomic.Uint64 }

// Next returns the next epoch.
func (e *Epochs) Next() wire.Epoch {
	for {
		last := e.last.Load()
		if last == math.MaxUint64 {
			return math.MaxUint64
		}
		next := max(last+1, uint64(max(time.Now().UnixNano(), 0)))
		if e.last.CompareAndSwap(last, next) {
			return wire.Epoch(next)
		}
	}
}
