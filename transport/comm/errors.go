package comm

import "errors"

// Errors that callers distinguish, in addition to devices.ErrRange,
// region.ErrKey, region.ErrRights and the errors of control.
var (
	// ErrNotConnected reports a peer with which there has been no session.
	ErrNotConnected = errors.New("comm: not connected")
	// ErrPort reports a port that has a handler already.
	ErrPort = errors.New("comm: port already in use")
	// ErrClosed reports a communicator that is closed.
	ErrClosed = errors.New("comm: closed")
	// ErrNoTransport reports two ranks without a common transport.
	ErrNoTransport = errors.New("comm: no common transport")
)
