package metadata

import (
	"context"
	"sync"
	"sync/atomic"
)

// inoBatch is how many inode numbers are taken from the KV at once. A crash
// wastes at most this many.
const inoBatch = 4096

// allocator hands out inode numbers, each once. The number of next is free,
// and so are all up to limit, which has been stored.
type allocator struct {
	next  atomic.Uint64
	limit atomic.Uint64
	mu    sync.Mutex // held while a batch is taken
}

// start sets the first free number; none is ready to be given yet.
func (a *allocator) start(next Ino) {
	a.next.Store(uint64(next))
	a.limit.Store(uint64(next))
}

// take returns a free number if the batch has one.
func (a *allocator) take() (Ino, bool) {
	for {
		n := a.next.Load()
		if n >= a.limit.Load() {
			return 0, false
		}
		if a.next.CompareAndSwap(n, n+1) {
			return Ino(n), true
		}
	}
}

// NextIno returns the lowest inode number that has not been given yet: every
// inode that exists has a lower one.
func (s *Store) NextIno() Ino { return Ino(s.alloc.next.Load()) }

// newIno returns an inode number that was never given before. No transaction
// is open when it is called, since it may need one of its own.
func (s *Store) newIno(ctx context.Context) (Ino, error) {
	for {
		if ino, ok := s.alloc.take(); ok {
			return ino, nil
		}
		if err := s.refillInos(ctx); err != nil {
			return 0, err
		}
	}
}

func (s *Store) refillInos(ctx context.Context) error {
	s.alloc.mu.Lock()
	defer s.alloc.mu.Unlock()
	if s.alloc.next.Load() < s.alloc.limit.Load() {
		return nil
	}
	limit := s.alloc.limit.Load() + inoBatch
	err := s.kv.Update(ctx, func(kv KVTxn) error {
		return kv.Set([]byte{kindAlloc}, encodeNumber(nil, limit))
	})
	if err == nil {
		s.alloc.limit.Store(limit)
	}
	return err
}
