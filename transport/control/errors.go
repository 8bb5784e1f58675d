package control

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// Errors that callers distinguish.
var (
	// ErrTaken reports a rank that is connected already.
	ErrTaken = errors.New("control: the rank is already connected")
	// ErrAuth reports a peer that can't prove its identity, or does not accept
	// ours.
	ErrAuth = errors.New("control: not authenticated")
	// ErrSilent reports a peer that ended the connection during the handshake:
	// the secrets differ, or hmcfs there is older, or only one side has
	// certificates, or the peer is about to end, or turns this connection away to
	// make room, or the network has cut it.
	ErrSilent = errors.New("control: the peer broke off the handshake; check that both sides have the same secret, and that hmcfs there is not older")
	// ErrCover reports that only one side encrypts.
	ErrCover = errors.New("control: one side was started with --plain and the other was not")
	// ErrCrossing reports a peer that connects to us at the same time: its
	// connection is the one that stays.
	ErrCrossing = errors.New("control: the peer is connecting to this rank itself")
	// ErrRefused reports a peer that does not accept this connection.
	ErrRefused = errors.New("control: refused by the peer")
	// ErrDisconnected reports a connection that has ended, on either side.
	ErrDisconnected = errors.New("control: disconnected")
	// ErrClosedByPeer is the cause of the end of a connection that the peer has ended in order.
	ErrClosedByPeer = errors.New("closed by the peer")
	// ErrTooLong reports a message of more than wire.MaxMessage bytes.
	ErrTooLong = errors.New("control: message too long")
)

// Disconnected returns the error of a connection to a peer that has ended:
// ErrDisconnected and the cause. Without a cause it is nil.
func Disconnected(peer wire.Rank, cause error) error {
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", peer, ErrDisconnected, cause)
}

// RefusalError is a peer's answer in place of a welcome. It is ErrTaken,
// ErrCrossing or ErrRefused.
type RefusalError struct {
	Peer   wire.Rank
	Code   wire.RefusalCode
	Reason string
}

// Error names the peer and its reason.
func (e *RefusalError) Error() string {
	return fmt.Sprintf("%s refused the connection: %q", e.Peer, e.Reason)
}

// WrongRankError reports that another rank listens where one was expected. The
// identity that it claims has not been proved.
type WrongRankError struct{ Want, Got wire.Rank }

// Error names both.
func (e *WrongRankError) Error() string { return fmt.Sprintf("%s answered, not %s", e.Got, e.Want) }

// Is matches the error that the code stands for.
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
