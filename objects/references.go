package objects

import "context"

// Forget drops n references of the kernel, and reports whether those were the last.
func (s *Store) Forget(ino Ino, n uint64) (last bool) {
	if last = s.table.forget(ino, n); last {
		s.headers.forget(ino)
	}
	return last
}

// Nameless reports whether an inode to which the kernel refers has no name any more,
// and whether it is open.
func (s *Store) Nameless(ctx context.Context, ino Ino) (nameless, open bool) {
	if _, err := s.meta.Get(ctx, ino); err == nil {
		return false, false
	}
	_, known := s.table.orphanOf(ino)
	return known, s.table.isOpen(ino)
}
