package metadata

import (
	"context"
	"errors"
)

// Get returns an inode.
//
// Errors: ErrNotExist.
func (s *Store) Get(ctx context.Context, ino Ino) (Inode, error) {
	shard := s.cache.ofInode(ino)
	in, ok, drops := shard.get(ino)
	if ok {
		return in, ctx.Err()
	}
	rec, err := read(ctx, s, func(t *txn) (record, error) { return t.inode(ino) })
	if err == nil {
		shard.put(ino, rec.Inode, drops)
	}
	return rec.Inode, err
}

// Lookup returns the inode with a name in a directory. "." and ".." are not stored, so they
// are invalid names here.
//
// Errors: ErrNotExist, also if the directory itself was removed; ErrNotDir; ErrNameTooLong;
// ErrInvalidName.
func (s *Store) Lookup(ctx context.Context, parent Ino, name string) (Inode, error) {
	if err := validName(name); err != nil {
		return Inode{}, err
	}
	ino, err := s.findName(ctx, parent, name)
	if err != nil {
		return Inode{}, err
	}
	in, err := s.Get(ctx, ino)
	if errors.Is(err, ErrNotExist) {
		// Either the name has been removed since, or the records are inconsistent: a lookup
		// in one snapshot decides.
		return s.lookup(ctx, parent, name)
	}
	return in, err
}

// findName returns the inode number of a name.
func (s *Store) findName(ctx context.Context, parent Ino, name string) (Ino, error) {
	place := nameKey{parent, s.firstCookie(name)}
	shard := s.cache.ofName(place)
	cached, ok, drops := shard.get(place)
	if ok && cached.name == name {
		return cached.ino, ctx.Err()
	}
	sl, err := read(ctx, s, func(t *txn) (slot, error) {
		sl, err := t.findDirent(parent, name)
		if err != nil || sl.found {
			return sl, err
		}
		if _, err = t.dir(parent); err != nil {
			return sl, err
		}
		return sl, ErrNotExist
	})
	if err == nil && sl.cookie == place.cookie {
		shard.put(place, cachedName{name, sl.ino}, drops)
	}
	return sl.ino, err
}

// lookup is Lookup in one snapshot.
func (s *Store) lookup(ctx context.Context, parent Ino, name string) (Inode, error) {
	rec, err := read(ctx, s, func(t *txn) (record, error) {
		sl, err := t.findDirent(parent, name)
		switch {
		case err != nil:
			return record{}, err
		case !sl.found:
			return record{}, ErrNotExist
		}
		return t.target(sl.dirent)
	})
	return rec.Inode, err
}
