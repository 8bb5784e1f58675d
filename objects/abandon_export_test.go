package objects

// Abandon ends the background work of a store and nothing else, as the death of its process
// does.
func (s *Store) Abandon() {
	s.stop()
	s.events.close()
	_ = s.owners.Close()
	s.work.Wait()
}
