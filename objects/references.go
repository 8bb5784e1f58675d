package objects

import (
	"context"

	"go.uber.org/zap"
)

// Forget drops n references of the kernel, and reports whether those were the last.
func (s *Store) Forget(ino Ino, n uint64) (last bool) {
	if last = s.table.forget(ino, n); last {
		s.headers.forget(ino)
	}
	return last
}

// PinDir counts a handle of a directory. A directory that has one when it is removed can be used until UnpinDir, also by the
// process that follows, as the inodes that Orphans returns can.
func (s *Store) PinDir(ctx context.Context, ino Ino) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	e := sh.getLocked(ino)
	e.opens++
	loose := e.orphan != nil && e.xattrs == nil
	sh.mu.Unlock()
	if loose {
		if _, err := s.attrs.holdNameless(ctx, ino); err != nil {
			s.log.Warn("a directory that was removed ends with this process", zap.Uint64("ino", uint64(ino)), zap.Error(err))
		}
	}
}

// UnpinDir ends what PinDir has begun.
func (s *Store) UnpinDir(ino Ino) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	e := sh.getLocked(ino)
	e.opens--
	left := e.leave()
	sh.sweepLocked(ino, e)
	sh.mu.Unlock()
	s.table.end(left)
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
