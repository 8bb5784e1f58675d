package metadata

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// inoBatch is the number of inode numbers reserved in the KV at a time. A crash wastes at
// most this many.
const inoBatch = 4096

// allocator assigns inode numbers, each once. The numbers from next up to limit, exclusive,
// are free, and limit has been stored.
type allocator struct {
	next  atomic.Uint64
	limit atomic.Uint64
	mu    sync.Mutex // held while a batch is reserved
}

// start sets the first free number, with an empty batch.
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

// NextIno returns the lowest inode number that has not been assigned: every existing inode
// has a lower one.
func (s *Store) NextIno() Ino { return Ino(s.alloc.next.Load()) }

// RaiseInos ensures that only numbers of at least floor are assigned from now on. It must
// be called before other goroutines allocate numbers.
func (s *Store) RaiseInos(ctx context.Context, floor Ino) error {
	s.alloc.mu.Lock()
	defer s.alloc.mu.Unlock()
	floor = max(floor, s.NextIno())
	err := s.kv.Update(ctx, func(kv KVTxn) error {
		return kv.Set([]byte{kindAlloc}, encodeNumber(nil, uint64(floor)))
	})
	if err != nil {
		return fmt.Errorf("raise the inode numbers to %d: %w", floor, err)
	}
	s.alloc.start(floor)
	return nil
}

// newIno returns an inode number that was never assigned before. It must not be called
// within a transaction, since it may need one of its own.
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
	if w := s.witness.Load(); w != nil {
		if err := (*w).Numbers(Ino(limit)); err != nil {
			return fmt.Errorf("reserve inode numbers: %w", err)
		}
	}
	err := s.kv.Update(ctx, func(kv KVTxn) error {
		return kv.Set([]byte{kindAlloc}, encodeNumber(nil, limit))
	})
	if err == nil {
		s.alloc.limit.Store(limit)
	}
	return err
}
