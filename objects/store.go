package objects

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// Store is the object store. Its methods may be called from any goroutine.
type Store struct {
	// The exported methods of these parts are methods of the store.
	*notices
	*table
	*claims
	*events
	*changes
	turns

	meta   *metadata.Store
	engine *transport.Engine
	log    *zap.Logger
	tiers  tiers
	attrs  *attributes
	access *access
	index  *keyIndex
	names  *names
	keyed  *keyed
	// bindings uses memory of others, and exports makes memory available to others.
	bindings     *bindings
	exports      *exports
	moves        *moves
	publications *publications
	headers      *headers
	// work counts the background work, for which Close waits.
	work *sync.WaitGroup
	stop context.CancelFunc
	// owners reports the exit of processes that own or use memory.
	owners *owner.Watcher
	// holders has the holders that have not been closed, as keys.
	holders sync.Map
	// recovery has the findings of Open; immutable afterwards.
	recovery Recovery
}

// MayReach checks whether a user could have reached an inode by its path, which needs
// search permission on all directories above it. It knows one path of the inode; a
// caller that has found the inode by another of its names passes a descriptor instead.
//
// Errors: ErrForbidden; metadata.ErrNotExist; ErrBusy.
func (s *Store) MayReach(ctx context.Context, who Caller, ino Ino) error {
	if who.UID == 0 {
		return nil
	}
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return err
	}
	return s.access.maySearchAbove(ctx, who, a.Inode)
}

// Volatile reports whether names in a directory appear and disappear without requests
// of the kernel, which must therefore not cache them: in publish/, and in the
// directories of keyed objects.
func (s *Store) Volatile(dir Ino) bool {
	return s.access.volatile(context.Background(), dir)
}
