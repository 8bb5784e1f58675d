package metadata

// Witness records, outside of the store, which inode numbers were assigned, so that an
// older copy of the records assigns none of them again. Its methods are called with locks
// of the store held and must not call the store.
type Witness interface {
	// Numbers is called before inode numbers up to limit are assigned. If it returns an
	// error, none is.
	Numbers(limit Ino) error
}

// SetWitness replaces the witness; nil removes it.
func (s *Store) SetWitness(w Witness) {
	if w == nil {
		s.witness.Store(nil)
		return
	}
	s.witness.Store(&w)
}
