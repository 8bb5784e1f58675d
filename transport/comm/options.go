package comm

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/tcp"
	"github.com/hmcfs/hmcfs/transport/ucx"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Transport names a transport that carries the bytes of puts and gets.
type Transport string

// The transports, the fastest first.
const (
	// RDMA is UCX over RDMA alone.
	RDMA Transport = "rdma"
	// SHM is memory that both processes map, on one host.
	SHM Transport = "shm"
	// UCX is libucp with any transports that it finds.
	UCX Transport = "ucx"
	// TCP is the data connections of the session: TCP or Unix sockets.
	TCP Transport = "tcp"
)

// DefaultChannels is the default number of data connections of a session.
const DefaultChannels = 1

// stripe is the smallest share of a transfer, in bytes, that is worth another channel:
// less is faster over a single one.
const stripe = 512 << 10

// Options configures a communicator.
type Options struct {
	// Rank is our own rank.
	Rank wire.Rank
	// Secret, Plain and TLS are as in control.Options: a secret or TLS is required.
	Secret []byte
	Plain  bool
	TLS    *tls.Config
	// PeerName and PeerRank are as in control.Options: the names in the
	// certificates of ranks.
	PeerName func(wire.Rank) string
	PeerRank func(name string) wire.Rank
	// Engine moves bytes from and to device memory, and provides pinned slots. It
	// is borrowed: close it after the communicator. Required.
	Engine *transport.Engine
	// Transports lists the transports that may be used, in any order: with each
	// peer the fastest that both sides have. A peer with which none remains gets
	// no session. The data connections always exist as well, and carry what the
	// transport can't.
	//
	// Empty means all but UCX, which without RDMA is slower than the others (see
	// docs/benchmarks/peers.md). Peers with which RDMA and UCX are used are trusted
	// with the memory of this process: see transport/ucx.
	Transports []Transport
	// Devices are those on which memory is opened that a peer on this host shares
	// by a handle. They are borrowed: close them after the communicator. Memory
	// on other devices uses the data connections.
	Devices []devices.Device
	// UCX configures libucp for the transports RDMA and UCX. Its Engine and RDMA
	// are set from here.
	UCX ucx.Options
	// Channels is the number of data connections of a session that we connect,
	// from 1 to 16. Large transfers are striped over them. Default 1.
	Channels int
	// Chunk is the payload of one frame, in bytes, from 4 KiB to 64 MiB; the
	// smaller value of two ranks is used. Default 1 MiB.
	Chunk uint32
	// InFlight is the number of chunks of a channel that may await their answer,
	// from 1 to 256. Default 32.
	InFlight int
	// Timeout bounds the time that we wait for a peer without progress, and the
	// time until a peer whose machine is dead or cut off is considered dead. The
	// latter is counted in seconds. Default 30 s.
	Timeout time.Duration
	// HandshakeTimeout bounds the time that a peer has to authenticate. Default
	// 10 s.
	HandshakeTimeout time.Duration
	// Logger receives a line for the start and the end of each session. Nil means
	// no log.
	Logger *zap.Logger
}

// EnsureDefaults fills in the fields left at their zero value.
func (o *Options) EnsureDefaults() {
	o.Channels = cmp.Or(o.Channels, DefaultChannels)
	o.Timeout = cmp.Or(o.Timeout, tcp.DefaultTimeout)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, control.DefaultHandshakeTimeout)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.Channels < 1 || o.Channels > wire.MaxChannels {
		faults = append(faults, fmt.Errorf("comm: %d channels; use 1 to %d", o.Channels, wire.MaxChannels))
	}
	for _, t := range o.Transports {
		if !slices.Contains([]Transport{RDMA, SHM, UCX, TCP}, t) {
			faults = append(faults, fmt.Errorf("comm: transport %q; use %s, %s, %s or %s", t, RDMA, SHM, UCX, TCP))
		}
	}
	co := o.control(nil)
	co.EnsureDefaults()
	channel := o.channel(region.NewKeys(), &pages.Pool{})
	channel.EnsureDefaults()
	return errors.Join(append(faults, co.Validate(), channel.Validate())...)
}

// channel returns the options for data connections.
func (o *Options) channel(keys *region.Keys, pipes *pages.Pool) tcp.Options {
	return tcp.Options{Keys: keys, Engine: o.Engine, Pipes: pipes, InFlight: o.InFlight, Timeout: o.Timeout}
}

// control returns the options for making connections.
func (o *Options) control(epochs *control.Epochs) control.Options {
	return control.Options{
		Rank: o.Rank, Secret: o.Secret, Plain: o.Plain, TLS: o.TLS, PeerName: o.PeerName, PeerRank: o.PeerRank, Epochs: epochs, Chunk: o.Chunk,
		HandshakeTimeout: o.HandshakeTimeout, Timeout: o.Timeout, Logger: o.Logger,
	}
}
