package rpc

import (
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

// Lane is a class of questions that are counted by themselves: those of one
// never wait for those of another.
type Lane uint8

// Lanes is their number.
const Lanes Lane = 4

// Options describe an endpoint.
type Options struct {
	// Comm carries the packets. Required. It is borrowed: the endpoint is
	// closed first.
	Comm *comm.Communicator
	// Handlers answer the methods. A method without one is CodeNoMethod.
	Handlers map[Method]Handler
	// Notices get what Notify sends, one after the other for each peer. They
	// must not wait. The body is theirs.
	Notices map[Method]func(from Caller, body []byte)
	// Lanes are the lanes of methods, below Lanes; the others are in lane 0. A
	// handler that asks a peer in its turn belongs into another lane than what
	// it asks for, and what takes long into another one than what does not.
	// Both sides have the same.
	Lanes map[Method]Lane
	// OnEnd is told that a session with a peer that has asked or told something
	// has ended, or that the endpoint is closed. No handler runs for that session
	// any more then.
	OnEnd func(Caller)
	// Coder tells what code a handler's error has. Nil is CodeUnknown for all.
	Coder Coder
	// Timeout is the deadline of questions whose context has none. Default 10 s.
	Timeout time.Duration
	// Silence bounds how long a peer may answer neither a question nor a heartbeat: then
	// its session ends, with a SilentError, and all that waits for it fails. A handler
	// may take as long as it likes, since heartbeats are answered without one. Default
	// Timeout.
	Silence time.Duration
	// MaxConcurrent bounds the questions of one peer that are answered at once in
	// one lane, from 1 to 1024; as many again may wait. Default 64.
	MaxConcurrent int
	// MaxPending bounds the questions of ours to one peer that are under way at once
	// in one lane, from 1 to 1024: the next ones wait until one is answered. It
	// is no more than the peers' MaxConcurrent twice. Default 64.
	MaxPending int
	// Logger gets a line for peers that break a rule; nil is silent.
	Logger *zap.Logger
}

// EnsureDefaults fills in what is left at its zero value.
func (o *Options) EnsureDefaults() {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Silence == 0 {
		o.Silence = o.Timeout
	}
	if o.MaxConcurrent == 0 {
		o.MaxConcurrent = DefaultConcurrent
	}
	if o.MaxPending == 0 {
		o.MaxPending = DefaultConcurrent
	}
	if o.OnEnd == nil {
		o.OnEnd = func(Caller) {}
	}
	if o.Coder == nil {
		o.Coder = func(error) Code { return CodeUnknown }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
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
			faults = append(faults, fmt.Errorf("rpc: %d questions at once; use 1 to %d", n, MaxConcurrent))
		}
	}
	for m, l := range o.Lanes {
		if l >= Lanes {
			faults = append(faults, fmt.Errorf("rpc: method %d in lane %d; use 0 to %d", m, l, Lanes-1))
		}
	}
	return errors.Join(faults...)
}

// carrier is the communicator, to the endpoint.
type carrier interface {
	Handle(port wire.Port, h comm.Handler) error
	Unhandle(port wire.Port)
	End(in comm.Origin, cause error)
	Origin(ctx context.Context, peer wire.Rank) (comm.Origin, error)
	SendPacketIn(ctx context.Context, in comm.Origin, port wire.Port, parts ...[]byte) error
	TryPacketIn(in comm.Origin, port wire.Port, parts ...[]byte) (sent bool, err error)
	TryPacket(to wire.Rank, port wire.Port, parts ...[]byte) (sent bool, err error)
}
