package region

import "errors"

// Errors that callers distinguish. A range outside a buffer is devices.ErrRange,
// a closed buffer devices.ErrClosed.
var (
	// ErrKey reports a key that names nothing: never granted, revoked, or of a
	// session that has ended.
	ErrKey = errors.New("region: unknown or revoked key")
	// ErrRights reports a key that does not allow the requested access.
	ErrRights = errors.New("region: the key does not allow this")
)
