package objects

import (
	"context"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// keyedState has what the store knows of keys beyond their records.
type keyedState struct {
	// turn is held for reading by who gives a file a key that nobody has, and
	// for writing by who takes a key from a file that was judged before. No
	// device copy runs under it.
	turn   sync.RWMutex
	expiry expiry
	// claims asks other machines about keys.
	claims claims
}

// keyCame tells who listens that a key names an object now.
func (s *Store) keyCame(in metadata.Inode) {
	s.emit(EventCreated, in.Key, in)
}

// inodeCame is keyCame for an inode whose bytes are there again, if it has a
// key.
func (s *Store) inodeCame(ctx context.Context, ino Ino) {
	if in, err := s.meta.Get(context.WithoutCancel(ctx), ino); err == nil && in.Key != "" {
		s.keyCame(in)
		s.have(ctx, SpaceKeys, in.Key)
	}
}
