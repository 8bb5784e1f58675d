package objects

import "context"

// KeyIno returns the inode that carries a key.
func (s *Store) KeyIno(ctx context.Context, key string) (Ino, error) {
	e, err := s.Key(ctx, key)
	return e.Ino, err
}
