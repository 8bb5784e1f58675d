package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Port is the package's port on the communicator.
const Port = wire.PortRPC

// The bounds of bodies, in bytes.
const (
	// MaxQuestion is the maximum size of the body of a request or a notice.
	MaxQuestion = 60 << 10
	// MaxAnswer is the maximum size of the body of an answer.
	MaxAnswer = 1 << 20
	// MaxText is the maximum size of an error's text; the rest is truncated.
	MaxText = 1 << 10
)

// Method identifies a kind of request or notice.
type Method uint16

// Code is the meaning of an error, as agreed by both sides. Codes below 16 belong
// to this package.
type Code uint16

// The package's codes.
const (
	// CodeUnknown is an error without a code.
	CodeUnknown Code = 1
	// CodeNoMethod is a method without a handler.
	CodeNoMethod Code = 2
	// CodeBusy is a peer that has had too many of our requests until the
	// deadline. It has not started this one.
	CodeBusy Code = 3
	// CodeDeadline is a deadline that passed at the peer.
	CodeDeadline Code = 4
	// CodeClosing is a peer that is about to end.
	CodeClosing Code = 5
)

// Error is the peer's answer in place of a body.
type Error struct {
	Peer wire.Rank
	Code Code
	Text string
}

// Error returns the peer's text.
func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Peer, e.Text) }

// Is matches context.DeadlineExceeded if the deadline passed at the peer.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == CodeDeadline
}

// Errors that callers distinguish, in addition to *Error and the errors of comm
// and control.
var (
	// ErrTooLong reports a body that exceeds its bound.
	ErrTooLong = errors.New("rpc: body too long")
	// ErrProtocol reports a peer that breaks the rules. It ends the session.
	ErrProtocol = errors.New("rpc: protocol violation")
)

// Caller is the calling rank, in one session.
type Caller struct {
	Rank wire.Rank
	// Session is the session in which the request arrived.
	Session comm.Origin
}

// Handler serves one kind of request. It owns the body until it returns, and the
// package owns the answer from then on. The context ends with the deadline, on
// the caller's cancellation, and with the session.
type Handler func(ctx context.Context, from Caller, body []byte) ([]byte, error)

// Coder returns the code of an error; CodeUnknown if it has none.
type Coder func(error) Code

// Stats counts an endpoint's operations since it was made.
type Stats struct {
	// Asked is the number of our requests that were sent, each a round trip; Told
	// that of notices.
	Asked uint64 `json:"asked"`
	Told  uint64 `json:"told"`
	// Answered is the number of peers' requests that reached a handler, Refused
	// that of the others.
	Answered uint64 `json:"answered"`
	Refused  uint64 `json:"refused"`
}
