package objects

import "context"

// Reference counts n references that the kernel holds to an inode. While
// there are any, an inode without names is as it was: a descriptor of O_PATH,
// or a working directory, is no handle, and what it refers to can be opened.
func (s *Store) Reference(ino Ino, n uint64) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	sh.getLocked(ino).lookups += n
	sh.mu.Unlock()
}

// Forget drops n references of the kernel's, and says whether those were the
// last.
func (s *Store) Forget(ino Ino, n uint64) (last bool) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	last = true
	var left remains
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

// ReferencePart counts a reference to what is shown of an inode elsewhere.
// While there is any, the attributes of an inode without names can be asked for.
func (s *Store) ReferencePart(ino Ino) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.getLocked(ino).parts++
}

// ForgetPart drops a reference of ReferencePart's.
func (s *Store) ForgetPart(ino Ino) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[ino]; e != nil {
		e.parts -= min(1, e.parts)
		sh.sweepLocked(ino, e)
	}
}

// Nameless says that an inode which the kernel refers to has no name any more,
// and whether anybody has it open.
func (s *Store) Nameless(ctx context.Context, ino Ino) (nameless, open bool) {
	if _, err := s.meta.Get(ctx, ino); err == nil {
		return false, false
	}
	_, known := s.table.orphanOf(ino)
	return known, s.table.isOpen(ino)
}
