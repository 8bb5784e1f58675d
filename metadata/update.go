package metadata

import (
	"context"
	"fmt"
)

// Update reads, changes and writes one inode in a transaction, and returns it as written.
// fn may set the permission bits of the mode, the owner, the times, the size of anything
// but a directory, the epoch, the allocated bytes and the path. It may run more than once,
// each time on the stored state, and must not use the store. If fn returns an error, Update
// returns it unchanged and writes nothing.
//
// Errors: ErrNotExist; ErrInvalid if fn changed any other field.
func (s *Store) Update(ctx context.Context, ino Ino, fn func(*Inode) error) (Inode, error) {
	return s.change(ctx, ino, fn, nil)
}

// apply runs fn on the inode and rejects changes that are reserved for other operations.
func (i *record) apply(fn func(*Inode) error) error {
	if fn == nil {
		return nil
	}
	was := i.Inode
	if err := fn(&i.Inode); err != nil {
		return err
	}
	fixed := was
	fixed.Mode = was.Mode.Type() | i.Mode.Perm()
	fixed.UID, fixed.GID = i.UID, i.GID
	fixed.Atime, fixed.Mtime = i.Atime, i.Mtime
	fixed.Ctime, fixed.Btime = i.Ctime, i.Btime
	fixed.Epoch, fixed.Allocated, fixed.Path = i.Epoch, i.Allocated, i.Path
	if !was.IsDir() {
		fixed.Size = i.Size
	}
	if fixed != i.Inode {
		return fmt.Errorf("%w: update of a field that callers may not set", ErrInvalid)
	}
	return nil
}

// change is Update with an additional change, which fn may not make. Both may be nil.
func (s *Store) change(ctx context.Context, ino Ino, fn func(*Inode) error, more func(*txn, *record) error) (Inode, error) {
	defer s.locks.lock(ino)()
	var rec record
	err := s.update(ctx, func(t *txn) (err error) {
		if rec, err = t.inode(ino); err != nil {
			return err
		}
		if err = rec.apply(fn); err != nil {
			return err
		}
		if more != nil {
			err = more(t, &rec)
		}
		if err == nil {
			t.putInode(&rec)
		}
		return err
	})
	return rec.Inode, err
}
