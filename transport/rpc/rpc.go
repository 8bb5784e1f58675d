package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Port is the communicator's port of the package.
const Port = wire.PortRPC

// The bounds of bodies, in bytes.
const (
	// MaxQuestion is the longest body of a question, and of a notice.
	MaxQuestion = 60 << 10
	// MaxAnswer is the longest body of an answer.
	MaxAnswer = 1 << 20
	// MaxText is the longest text of an error; the rest is cut off.
	MaxText = 1 << 10
)

// Method names what is asked for.
type Method uint16

// Code is the meaning of an error, to both sides. Those below 16 are the package's.
type Code uint16

// The package's codes.
const (
	// CodeUnknown is an error that has no code.
	CodeUnknown Code = 1
	// CodeNoMethod is a method that nobody handles.
	CodeNoMethod Code = 2
	// CodeBusy is a peer that has had too many questions of ours until the
	// deadline. It has not begun with this one.
	CodeBusy Code = 3
	// CodeDeadline is a deadline that passed at the peer.
	CodeDeadline Code = 4
	// CodeClosing is a peer that is about to end.
	CodeClosing Code = 5
)

// Error is the peer's answer in the place of a body.
type Error struct {
	Peer wire.Rank
	Code Code
	Text string
}

// Error is the peer's text.
func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Peer, e.Text) }

// Is makes a deadline that passed at the peer one that passed.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == CodeDeadline
}

// What callers tell apart, beside *Error and the errors of comm and control.
var (
	// ErrTooLong is a body beyond its bound.
	ErrTooLong = errors.New("rpc: body too long")
	// ErrProtocol is a peer that breaks the rules. It ends the session.
	ErrProtocol = errors.New("rpc: against the protocol")
)

// Caller is the rank that asks, in one session.
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

// Stats counts what an endpoint has done since it was made.
type Stats struct {
	// Asked is the questions of ours that were sent, each a round trip; Told the
	// notices.
	Asked uint64 `json:"asked"`
	Told  uint64 `json:"told"`
	// Answered is the questions of peers that came to a handler, Refused those
	// that did not.
	Answered uint64 `json:"answered"`
	Refused  uint64 `json:"refused"`
}
