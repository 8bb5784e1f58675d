package hetero

import "time"

// The limits of calls and clients.
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
	// ClaimIdle bounds how long a client keeps a reservation without reading.
	ClaimIdle = 10 * time.Minute
	// MaxMemories is how many pieces of memory a client has registered at most.
	MaxMemories = 1024
	// MaxBackgroundKeys is how many keys of one client are transferred in the
	// background at most; beyond it a call is ErrBusy.
	MaxBackgroundKeys = 20 * MaxKeys
	// MaxBackgroundCalls is how many calls they are at most.
	MaxBackgroundCalls = 256
)
