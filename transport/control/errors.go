package control

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// What callers tell apart.
var (
	// ErrTaken is a rank that is connected already.
	ErrTaken = errors.New("control: the rank is taken")
	// ErrAuth is a peer that can't prove its identity, or does not accept ours.
	ErrAuth = errors.New("control: not authenticated")
	// ErrSilent is a peer that ends the connection within the handshake: the secret is
	// another one, or hmcfs there is older, or one side has certificates and the other
	// has not, or the peer is about to end, or turns this connection away to make room,
	// or the network has cut it.
	ErrSilent = errors.New("control: the peer broke off the handshake; is the secret the same, and hmcfs there not older?")
	// ErrCover is a peer that encrypts where this side does not, or the reverse.
	ErrCover = errors.New("control: one side was started with --plain and the other was not")
	// ErrCrossing is a peer that connects to us at the same time: its
	// connection comes, and is the one that stays.
	ErrCrossing = errors.New("control: the peer connects by itself")
	// ErrRefused is a peer that does not want this connection.
	ErrRefused = errors.New("control: refused by the peer")
	// ErrDisconnected is a connection that has ended, on either side.
	ErrDisconnected = errors.New("control: disconnected")
	// ErrTooLong is a message of more than wire.MaxMessage bytes.
	ErrTooLong = errors.New("control: message too long")
)

// RefusalError is a peer's answer in the place of a welcome. It is
// ErrTaken, ErrCrossing or ErrRefused.
type RefusalError struct {
	Peer   wire.Rank
	Code   wire.RefusalCode
	Reason string
}

// Error names the peer and its reason.
func (e *RefusalError) Error() string {
	return fmt.Sprintf("%s refuses the connection: %q", e.Peer, e.Reason)
}

// WrongRankError is another rank listening where one was expected. What it says it
// is, it has not proved.
type WrongRankError struct{ Want, Got wire.Rank }

// Error names both.
func (e *WrongRankError) Error() string { return fmt.Sprintf("%s is there, not %s", e.Got, e.Want) }

// Is makes the error what its code says.
func (e *RefusalError) Is(target error) bool {
	switch e.Code {
	case wire.RefusedTaken:
		return target == ErrTaken
	case wire.RefusedCrossing:
		return target == ErrCrossing
	default:
		return target == ErrRefused
	}
}
