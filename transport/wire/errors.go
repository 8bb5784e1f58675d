package wire

import "errors"

// Errors of received frames. After each of them the connection is unusable.
var (
	// ErrFrame reports bytes that are not a valid frame: an unknown kind, a
	// length out of bounds, a non-zero field that must be zero.
	ErrFrame = errors.New("wire: malformed frame")
	// ErrVersion reports a frame of another version of the protocol.
	ErrVersion = errors.New("wire: different protocol version")
)
