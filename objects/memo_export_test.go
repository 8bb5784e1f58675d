package objects

// HeadersKept counts the headers of files of tensors that are remembered.
func (s *Store) HeadersKept() int64 {
	return s.headers.files.count.Load() + s.headers.singles.count.Load()
}
