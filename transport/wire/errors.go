package wire

import "errors"

// What a peer may be told apart by. Each means that the connection is of no
// more use.
var (
	// ErrFrame is bytes that are no frame: an unknown kind, a length out of
	// its bounds, a field that must be zero.
	ErrFrame = errors.New("wire: malformed frame")
	// ErrVersion is a frame of another version of the protocol.
	ErrVersion = errors.New("wire: another version of the protocol")
)
