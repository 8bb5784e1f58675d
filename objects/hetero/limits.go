package hetero

import "time"

// The limits of one call.
const (
	// MaxKeys is how many keys a call takes at most, the seed system's limit.
	MaxKeys = 10_000
	// MaxKeyLen is the length of the longest key in bytes.
	MaxKeyLen = 255
	// OneKeyTimeout is how long DevSubscribe waits for one key by default.
	OneKeyTimeout = 20 * time.Second
	// ManyKeysTimeout is how long DevSubscribe waits for several keys by
	// default.
	ManyKeysTimeout = 60 * time.Second
	// MaxTimeout is the longest that a call can be told to wait, the seed
	// system's limit of a future.
	MaxTimeout = 30 * time.Minute
)
