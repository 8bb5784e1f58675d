package hetero

import "time"

// The limits of calls and clients.
const (
	// MaxKeys bounds the keys of a call; it equals the seed system's limit.
	MaxKeys = 10_000
	// MaxKeyLen is the maximum length of a key, in bytes.
	MaxKeyLen = 255
	// OneKeyTimeout is the default time that DevSubscribe waits for one key.
	OneKeyTimeout = 20 * time.Second
	// ManyKeysTimeout is the default time that DevSubscribe waits for several keys.
	ManyKeysTimeout = 60 * time.Second
	// MaxTimeout is the maximum timeout of a call, the seed system's limit for a future.
	MaxTimeout = 30 * time.Minute
	// ClaimIdle bounds the time that a client keeps a reservation without reading.
	ClaimIdle = 10 * time.Minute
	// MaxMemories bounds the pieces of memory that a client may register.
	MaxMemories = 1024
	// MaxBackgroundKeys bounds the keys of one client that are transferred in the background
	// at one time; beyond it a call is ErrBusy.
	MaxBackgroundKeys = 20 * MaxKeys
	// MaxBackgroundCalls bounds the calls in the background.
	MaxBackgroundCalls = 256
)
