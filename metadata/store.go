package metadata

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Store is the namespace and the object records of one mount. All methods are safe for
// concurrent use, but none may be called after Close. If the context ends, a method fails
// without having changed anything, except where its comment says that it works in steps.
type Store struct {
	kv    KV
	log   *zap.Logger
	now   func() time.Time
	super superblock // immutable
	// hash returns a name's hash; tests make it collide.
	hash func(name string) uint64
	// purgeBatch is the constant, except in tests.
	purgeBatch int
	alloc      allocator
	locks      lockTable
	cache      *cache
	held       sync.Map // the inodes whose attributes outlive their last name
	nameless
	usage   usage
	updates updates
	putters putters
	// changed holds the function set by OnWrite, witness that set by SetWitness.
	changed atomic.Pointer[func(ino Ino, names bool)]
	witness atomic.Pointer[func(limit Ino) error]
}

// Close closes the KV. All other methods must have returned before.
func (s *Store) Close() error {
	s.alloc.ahead.Wait()
	return s.kv.Close()
}

// Room returns ErrNoSpace if the space left for records is reserved for removals, for
// changes of data, and for Close. Operations that add or change names, attributes and keys
// check it; Update doesn't.
func (s *Store) Room(ctx context.Context) error {
	if r, ok := s.kv.(Roomer); ok {
		return r.Room(ctx)
	}
	return nil
}

// Cut reports whether records may be missing; see Cutter. Bytes without a record must not
// be removed then.
func (s *Store) Cut() bool {
	c, ok := s.kv.(Cutter)
	return ok && c.Cut()
}

// Settle ends the state that Cut reports; see Cutter.
func (s *Store) Settle() {
	if c, ok := s.kv.(Cutter); ok {
		c.Settle()
	}
}

// Generation returns the number that distinguishes this store's inodes from those of
// another store. It is generated when the store is created.
func (s *Store) Generation() Generation { return s.super.gen }

// Now returns the current time of the store's clock, which also stamps its records.
func (s *Store) Now() Timespec { return TimespecOf(s.now()) }

// OnWrite has fn called for every inode, and every directory whose names changed, that a
// transaction has written or may have written: possibly more than once, and also for a
// failed transaction. It is called before the operation returns and with locks of the store
// held, so it must not block or call the store. nil removes fn; a call may still be running
// then.
func (s *Store) OnWrite(fn func(ino Ino, names bool)) {
	s.changed.Store(&fn)
}
