package objects

// HeadersKept returns the number of cached headers of tensor files.
func (s *Store) HeadersKept() int64 {
	return s.headers.files.count.Load() + s.headers.singles.count.Load()
}
