package objects

import "context"

// Reference counts n references of the kernel to an inode. While there are any, an
// inode without names stays usable: an O_PATH descriptor or a working directory is not
// a handle, but its inode can still be opened.
func (s *Store) Reference(ino Ino, n uint64) {
	s.table.reference(ino, n)
}

// Forget drops n references of the kernel, and reports whether those were the last.
func (s *Store) Forget(ino Ino, n uint64) (last bool) {
	if last = s.table.forget(ino, n); last {
		s.headers.forget(ino)
	}
	return last
}

// ReferencePart counts a reference to a view of the inode elsewhere. While there is
// any, the attributes of an inode without names remain available.
func (s *Store) ReferencePart(ino Ino) {
	s.table.referencePart(ino)
}

// ForgetPart drops a reference counted by ReferencePart.
func (s *Store) ForgetPart(ino Ino) {
	s.table.forgetPart(ino)
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

// Drop reports that an inode may have lost its last name without a request of the
// kernel, which may therefore keep the name: content without names is then freed with
// the last handle.
func (s *Store) Drop(ino Ino) { s.table.drop(ino) }
