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

// Port is the communicator's port of the package.
const Port wire.Port = 2

// The bounds of bodies, in bytes.
const (
	// MaxQuestion is the longest body of a question, and of a notice.
	MaxQuestion = 60 << 10
	// MaxAnswer is the longest body of an answer.
	MaxAnswer = 1 << 20
)

// Method names what is asked for.
type Method uint16

// Code is what an error is, to both sides. Those below 16 are the package's.
type Code uint16

// The package's codes.
const (
	// CodeUnknown is an error that has no code.
	CodeUnknown Code = 1
	// CodeNoMethod is a method that nobody handles.
	CodeNoMethod Code = 2
	// CodeBusy is a peer with too many questions of ours.
	CodeBusy Code = 3
	// CodeDeadline is a deadline that passed at the peer.
	CodeDeadline Code = 4
)

// Error is what the peer has answered in the place of a body.
type Error struct {
	Peer wire.Rank
	Code Code
	Text string
}

// Error is the peer's text.
func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Peer, e.Text) }

// ErrTooLong is a body beyond its bound.
var ErrTooLong = errors.New("rpc: body too long")

// Caller is who asks.
type Caller struct {
	Rank wire.Rank
	// Session is the session that the question came by.
	Session comm.Origin
}

// Handler answers one kind of question. The body is its own until it returns,
// the answer the package's from then on. The context ends with the deadline,
// the asker's wish and the session.
type Handler func(ctx context.Context, from Caller, body []byte) ([]byte, error)

// Coder tells the code of an error; CodeUnknown where it has none.
type Coder func(error) Code

// Options is what an endpoint is made with.
type Options struct {
	// Comm carries the packets. Required. It is borrowed: the endpoint is
	// closed first.
	Comm *comm.Communicator
	// Handlers answer the methods. A method without one is CodeNoMethod.
	Handlers map[Method]Handler
	// Notices get what Notify sends, one after the other for each peer. They
	// must not wait.
	Notices map[Method]func(from Caller, body []byte)
	// OnEnd is told that a session with a peer that has asked something has
	// ended. No handler runs for that session any more then.
	OnEnd func(Caller)
	// Coder tells what code a handler's error has. Nil is CodeUnknown for all.
	Coder Coder
	// Timeout is the deadline of questions whose context has none. Default 10 s.
	Timeout time.Duration
	// MaxConcurrent is how many questions of one peer are answered at once,
	// from 1 to 1024; as many again may wait. Default 64.
	MaxConcurrent int
	// Logger gets a line for peers that break a rule; nil is silent.
	Logger *zap.Logger
}
