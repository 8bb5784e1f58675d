package objects

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// keyed assigns keys to files and takes them away, and removes files whose time to live
// is over.
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
	// turn is held for reading while a free key is assigned to a file, and for writing
	// while a key is taken from a file that was examined before. No device copy runs under
	// it.
	turn   sync.RWMutex
	expiry expiry
}

// keyCame emits the event that a key now names an object.
func (ks *keyed) keyCame(in *metadata.Inode) {
	ks.events.emit(EventCreated, in.Key, in)
}

// inodeCame is keyCame for an inode whose bytes are available again, if it has a key.
func (ks *keyed) inodeCame(ctx context.Context, ino Ino) {
	ctx = context.WithoutCancel(ctx)
	in, err := ks.meta.Get(ctx, ino)
	if err != nil {
		return
	}
	if in.Key != "" {
		ks.keyCame(&in)
		ks.claims.have(ctx, SpaceKeys, in.Key)
	}
	if in.Parts == 0 {
		return
	}
	parts, err := ks.meta.PartKeys(ctx, ino)
	if err != nil {
		ks.log.Warn("could not read the keys of a file's tensors", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	for _, p := range parts {
		ks.claims.have(ctx, SpaceKeys, p.Key)
	}
}
