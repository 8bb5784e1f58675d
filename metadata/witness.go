package metadata

// Witness remembers, outside of the records, which inode numbers were given, so that
// an older copy of the records gives none of them again. Its methods are called with
// locks of the store held and call nothing of the store.
type Witness interface {
	// Numbers is called before inode numbers up to limit are given. With an error
	// none is.
	Numbers(limit Ino) error
}

// SetWitness replaces the witness; nil ends it.
func (s *Store) SetWitness(w Witness) {
	if w == nil {
		s.witness.Store(nil)
		return
	}
	s.witness.Store(&w)
}
