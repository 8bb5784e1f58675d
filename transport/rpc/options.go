package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The defaults and bounds of Options.
const (
	DefaultTimeout    = 10 * time.Second
	DefaultConcurrent = 64
	MaxConcurrent     = 1024
)

// Lane is a class of requests that are counted separately: requests of one lane
// never wait for those of another.
type Lane uint8

// Lanes is the number of lanes.
const Lanes Lane = 4

// Options configures an endpoint.
type Options struct {
	// Comm carries the packets. Required. It is borrowed: close the endpoint
	// first.
	Comm *comm.Communicator
	// Handlers serve the methods. A method without one is answered with
	// CodeNoMethod.
	Handlers map[Method]Handler
	// Notices handle the notices of Notify, sequentially for each peer. They must
	// not block. The body belongs to them.
	Notices map[Method]func(from Caller, body []byte)
	// Lanes assigns methods to lanes, below Lanes; the others are in lane 0. A
	// handler that calls peers in turn belongs in another lane than the methods
	// that it calls, and a slow method in another lane than fast ones. Both sides
	// must have the same assignment.
	Lanes map[Method]Lane
	// OnEnd is called when a session with a peer that has sent a request or a
	// notice has ended, or the endpoint is closed. No handler of that session
	// runs any more then.
	OnEnd func(Caller)
	// Coder returns the code of a handler's error. Nil means CodeUnknown for all.
	Coder Coder
	// Timeout is the deadline of requests whose context has none. Default 10 s.
	Timeout time.Duration
	// Silence bounds the time in which a peer may answer neither a request nor a
	// heartbeat: then its session ends, with a SilentError, and everything that
	// waits for it fails. A handler may take any amount of time, since heartbeats
	// are answered without one. Default Timeout.
	Silence time.Duration
	// MaxConcurrent bounds the requests of one peer that are served at once in
	// one lane, from 1 to 1024; as many again may wait. Default 64.
	MaxConcurrent int
	// MaxPending bounds our requests to one peer that are pending at once in one
	// lane, from 1 to 1024: further ones wait until one is answered. It should be
	// at most twice the peers' MaxConcurrent. Default 64.
	MaxPending int
	// Logger receives a line for each peer that breaks a rule; nil means no log.
	Logger *zap.Logger
}

// EnsureDefaults fills in the fields left at their zero value.
func (o *Options) EnsureDefaults() {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Silence = cmp.Or(o.Silence, o.Timeout)
	o.MaxConcurrent = cmp.Or(o.MaxConcurrent, DefaultConcurrent)
	o.MaxPending = cmp.Or(o.MaxPending, DefaultConcurrent)
	if o.OnEnd == nil {
		o.OnEnd = func(Caller) {}
	}
	if o.Coder == nil {
		o.Coder = func(error) Code { return CodeUnknown }
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	for what, d := range map[string]time.Duration{"timeout": o.Timeout, "silence": o.Silence} {
		if d < 0 {
			faults = append(faults, fmt.Errorf("rpc: %s %v must not be negative", what, d))
		}
	}
	for _, n := range []int{o.MaxConcurrent, o.MaxPending} {
		if n < 1 || n > MaxConcurrent {
			faults = append(faults, fmt.Errorf("rpc: %d concurrent requests; use 1 to %d", n, MaxConcurrent))
		}
	}
	for m, l := range o.Lanes {
		if l >= Lanes {
			faults = append(faults, fmt.Errorf("rpc: method %d in lane %d; use 0 to %d", m, l, Lanes-1))
		}
	}
	return errors.Join(faults...)
}

// carrier is the communicator as the endpoint uses it.
type carrier interface {
	Handle(port wire.Port, h comm.Handler) error
	Unhandle(port wire.Port)
	End(in comm.Origin, cause error)
	Origin(ctx context.Context, peer wire.Rank) (comm.Origin, error)
	SendPacketIn(ctx context.Context, in comm.Origin, port wire.Port, parts ...[]byte) error
	TryPacketIn(in comm.Origin, port wire.Port, parts ...[]byte) (sent bool, err error)
	TryPacket(to wire.Rank, port wire.Port, parts ...[]byte) (sent bool, err error)
}
