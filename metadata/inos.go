package metadata

import (
	"context"
	"fmt"

	"go.uber.org/zap"
)

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

// SetWitness has record called before inode numbers up to limit are assigned, so that an
// older copy of the records assigns none of them again. If it returns an error, none is
// assigned. nil removes it. It is called from
// any goroutine, with locks of the store held, and must not call the store.
func (s *Store) SetWitness(record func(limit Ino) error) { s.witness.Store(&record) }

// NewInos allocates n inode numbers for Put.
//
// Errors: those of the KV.
func (s *Store) NewInos(ctx context.Context, n int) ([]Ino, error) {
	inos := make([]Ino, n)
	for i := range inos {
		var err error
		if inos[i], err = s.newIno(ctx); err != nil {
			return nil, err
		}
	}
	return inos, nil
}

// newIno returns an inode number that was never assigned before. It must not be called
// within a transaction, since it may need one of its own.
func (s *Store) newIno(ctx context.Context) (Ino, error) {
	for {
		ino, few, ok := s.alloc.take()
		if few {
			s.alloc.ahead.Go(func() { s.refillAhead(context.WithoutCancel(ctx)) })
		}
		if ok {
			return ino, nil
		}
		if err := s.refillInos(ctx, 0); err != nil {
			return 0, err
		}
	}
}

// refillAhead reserves the next batch before it is needed.
func (s *Store) refillAhead(ctx context.Context) {
	if err := s.refillInos(ctx, inosAhead); err != nil {
		s.log.Warn("could not reserve inode numbers in advance; the next one that is needed beyond the present batch has it tried again", zap.Error(err))
	}
}

// refillInos reserves the next batch, unless more than few numbers are free.
func (s *Store) refillInos(ctx context.Context, few uint64) error {
	s.alloc.mu.Lock()
	defer s.alloc.mu.Unlock()
	limit := s.alloc.limit.Load()
	if limit-s.alloc.next.Load() > few {
		return nil
	}
	limit += inoBatch
	if record := s.witness.Load(); record != nil && *record != nil {
		if err := (*record)(Ino(limit)); err != nil {
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
