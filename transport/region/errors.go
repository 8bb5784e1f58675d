package region

import "errors"

// What callers tell apart. A range outside of a buffer is devices.ErrRange,
// a buffer that is closed devices.ErrClosed.
var (
	// ErrKey is a key that names nothing: never given, revoked, or of a
	// session that has ended.
	ErrKey = errors.New("region: unknown or revoked key")
	// ErrRights is a key that does not allow what was asked.
	ErrRights = errors.New("region: the key does not allow this")
)
