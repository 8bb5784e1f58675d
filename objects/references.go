package objects

import "context"

// Reference counts n references of the kernel to an inode. While there are any, an
// inode without names stays usable: an O_PATH descriptor or a working directory is not
// a handle, but its inode can still be opened.
func (s *Store) Reference(ino Ino, n uint64) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	sh.getLocked(ino).lookups += n
	sh.mu.Unlock()
}

// Forget drops n references of the kernel, and reports whether those were the last.
func (s *Store) Forget(ino Ino, n uint64) (last bool) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	last = true
	var left leftover
	if e := sh.entries[ino]; e != nil {
		e.lookups -= min(n, e.lookups)
		last = e.lookups == 0
		left = e.leave()
		sh.sweepLocked(ino, e)
	}
	sh.mu.Unlock()
	s.table.end(left)
	if last {
		s.headers.forget(ino)
	}
	return last
}

// ReferencePart counts a reference to a view of the inode elsewhere. While there is
// any, the attributes of an inode without names remain available.
func (s *Store) ReferencePart(ino Ino) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.getLocked(ino).parts++
}

// ForgetPart drops a reference counted by ReferencePart.
func (s *Store) ForgetPart(ino Ino) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[ino]; e != nil {
		e.parts -= min(1, e.parts)
		sh.sweepLocked(ino, e)
	}
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
