package objects

import "context"

// KeySpace is one of the two sets of keys.
type KeySpace int

// The spaces: of keys/ and of publish/.
const (
	SpaceKeys KeySpace = iota
	SpacePublish
)

// KeyAuthority decides between machines who may use a key. The store asks it
// before a key, or a name in publish/, becomes visible, and tells it when one
// has gone. Its methods may be called from any goroutine.
type KeyAuthority interface {
	// Claim asks for keys: for each nil, or metadata.ErrExist when another
	// machine has it. With a lane, a stripe or keyedState.turn held it is not
	// called.
	Claim(ctx context.Context, s KeySpace, keys []string) []error
	// Release gives keys up. It does not wait.
	Release(s KeySpace, keys []string)
}
