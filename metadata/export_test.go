package metadata

// CollideNames makes the store place names by another hash.
func CollideNames(s *Store, hash func(string) uint64) { s.hash = hash }

// PurgeBatch is the number of records that a removal takes along at once.
const PurgeBatch = purgeBatch
