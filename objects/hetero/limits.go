package hetero

import "time"

// The limits of calls and clients.
const (
	// MaxKeys bounds the keys of a call; it is the seed system's limit.
	MaxKeys = 10_000
	// MaxKeyLen is the length of the longest key in bytes.
	MaxKeyLen = 255
	// OneKeyTimeout is the time that DevSubscribe waits for one key by default.
	OneKeyTimeout = 20 * time.Second
	// ManyKeysTimeout is the time that DevSubscribe waits for several keys by
	// default.
	ManyKeysTimeout = 60 * time.Second
	// MaxTimeout is the longest that a call can be told to wait, the seed
	// system's limit of a future.
	MaxTimeout = 30 * time.Minute
	// ClaimIdle bounds how long a client keeps a reservation without reading.
	ClaimIdle = 10 * time.Minute
	// MaxMemories bounds the pieces of memory that a client has registered.
	MaxMemories = 1024
	// MaxBackgroundKeys bounds the keys of one client that are transferred in the
	// background at most; beyond it a call is ErrBusy.
	MaxBackgroundKeys = 20 * MaxKeys
	// MaxBackgroundCalls bounds their calls.
	MaxBackgroundCalls = 256
)
