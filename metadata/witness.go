package metadata

import "context"

// Versioner is implemented by a KV that numbers its commits.
type Versioner interface {
	// Version returns the number of the last commit. It grows with every commit,
	// and who opens the same KV again after the death of the process, with all that
	// was committed, finds no lower one.
	Version(ctx context.Context) (uint64, error)
}

// Witness remembers, outside of the records, how far they have come, so that a copy
// of them from another time is known. Its methods are called by many goroutines at
// once, and with locks of the store's held: they call nothing of the store's.
type Witness interface {
	// Numbers is told before inode numbers up to limit are given. With an error
	// none is.
	Numbers(limit Ino) error
	// Committed is told the version of the records after a change, before the
	// operation returns that made it.
	Committed(version uint64)
}

// SetWitness has a witness told of every change from now on; nil ends it, and what
// it has been told is what Opened answers then.
func (s *Store) SetWitness(ctx context.Context, w Witness) error {
	if w != nil {
		s.witness.Store(&w)
		return nil
	}
	s.witness.Store(nil)
	return s.noteOpened(ctx)
}

// Opened returns the version that the records had when they were opened, before
// anything was changed; ok is false for a KV that has none.
func (s *Store) Opened() (version uint64, ok bool) {
	_, ok = s.kv.(Versioner)
	return s.opened.Load(), ok
}

// Version returns the version that the records have now; 0 for a KV that has none.
func (s *Store) Version(ctx context.Context) (uint64, error) {
	v, ok := s.kv.(Versioner)
	if !ok {
		return 0, nil
	}
	return v.Version(ctx)
}

func (s *Store) noteOpened(ctx context.Context) error {
	v, err := s.Version(ctx)
	s.opened.Store(v)
	return err
}

// committed tells the witness of a change. Nobody can end it: the change is made.
func (s *Store) committed(ctx context.Context) {
	w := s.witness.Load()
	if w == nil {
		return
	}
	if v, err := s.Version(context.WithoutCancel(ctx)); err == nil && v > 0 {
		(*w).Committed(v)
	}
}
