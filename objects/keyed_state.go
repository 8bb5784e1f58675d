package objects

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// keyed gives keys to files and takes them, and removes files whose time to live is
// over. Of keys it knows, beyond their records, what is below.
type keyed struct {
	meta    *metadata.Store
	log     *zap.Logger
	attrs   *attributes
	access  *access
	index   *keyIndex
	claims  *claims
	events  *events
	names   *names
	changes *changes
	// turn is held for reading by who gives a file a key that nobody has, and
	// for writing by who takes a key from a file that was judged before. No
	// device copy runs under it.
	turn   sync.RWMutex
	expiry expiry
}

// keyCame tells who listens that a key names an object now.
func (ks *keyed) keyCame(in metadata.Inode) {
	ks.events.emit(EventCreated, in.Key, in)
}

// inodeCame is keyCame for an inode whose bytes are there again, if it has a
// key.
func (ks *keyed) inodeCame(ctx context.Context, ino Ino) {
	if in, err := ks.meta.Get(context.WithoutCancel(ctx), ino); err == nil && in.Key != "" {
		ks.keyCame(in)
		ks.claims.have(ctx, SpaceKeys, in.Key)
	}
}
