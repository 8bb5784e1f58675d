package comm

import "errors"

// What callers tell apart, beside devices.ErrRange, region.ErrKey,
// region.ErrRights and the errors of control.
var (
	// ErrNotConnected is a peer with which there has been no session.
	ErrNotConnected = errors.New("comm: not connected")
	// ErrPort is a port that has a handler already.
	ErrPort = errors.New("comm: port taken")
	// ErrClosed is a communicator that is closed.
	ErrClosed = errors.New("comm: closed")
	// ErrNoTransport is two ranks that have none in common.
	ErrNoTransport = errors.New("comm: no transport that both can use")
)
