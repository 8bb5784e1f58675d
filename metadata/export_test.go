package metadata

// CollideNames makes the store place names by another hash.
func CollideNames(s *Store, hash func(string) uint64) { s.hash = hash }

// SetPurgeBatch changes how many records a removal takes along at once.
func SetPurgeBatch(s *Store, n int) { s.purgeBatch = n }
