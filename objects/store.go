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
	meta    *metadata.Store
	engine  *transport.Engine
	log     *zap.Logger
	tiers   tiers
	notices *notices
	table   *table
	attrs   *attributes
	access  *access
	index   *keyIndex
	claims  *claims
	events  *events
	names   *names
	changes *changes
	keyed   *keyed
	// bindings has memory of others, and exports gives memory to others.
	bindings     *bindings
	exports      *exports
	moves        *moves
	publications *publications
	headers      *headers
	// work counts what goes on in the background, which Close waits for.
	work *sync.WaitGroup
	stop context.CancelFunc
	// owners tells when processes end that own memory, or hold it.
	owners *owner.Watcher
	// holders are those that have not been closed.
	holders holders
	turns   turns
	// recovery has what Open has found; immutable after it.
	recovery Recovery
}

// MayReach says whether a user could have come to an inode by its path, which needs
// the right to search all directories above it. A caller that has found it by
// another of its names shows a descriptor instead.
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

// Volatile says that names in a directory come and go without the kernel's
// doing, so that it must not keep them: publish/, and the directories of keyed
// objects.
func (s *Store) Volatile(dir Ino) bool {
	return s.access.volatile(context.Background(), dir)
}

// TakeTurn waits until nobody else has a turn who replaces one of these files, or
// reads one that is to be replaced; who comes first is first. It takes all of them
// at once, so that nobody waits for ever. done ends the turn, once.
//
// Errors: the context's.
func (s *Store) TakeTurn(ctx context.Context, reads, writes []Ino) (done func(), err error) {
	return s.turns.take(ctx, reads, writes)
}
