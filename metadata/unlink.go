package metadata

import "context"

// Unlink removes a name that does not belong to a directory, and returns the inode in its
// state afterwards. If its Nlink is 0, its records are removed too, and the returned inode
// still has its last place and key.
//
// Errors: ErrNotExist; ErrNotDir; ErrIsDir; ErrNameTooLong; ErrInvalidName.
func (s *Store) Unlink(ctx context.Context, parent Ino, name string) (Inode, error) {
	return s.remove(ctx, s.kv.Update, parent, name, (*txn).unlink)
}

// UnlinkSoon is Unlink for a file of fleeting memory: it may return before it has written the removal;
// see Deferrer.
func (s *Store) UnlinkSoon(ctx context.Context, parent Ino, name string) (Inode, error) {
	return s.remove(ctx, s.soon(), parent, name, (*txn).unlink)
}

// Rmdir removes an empty directory, and returns it in its state afterwards: Nlink is 0 and
// the records are gone.
//
// Errors: ErrNotExist; ErrNotDir; ErrNotEmpty; ErrPermission for the
// directory of a device; ErrNameTooLong; ErrInvalidName.
func (s *Store) Rmdir(ctx context.Context, parent Ino, name string) (Inode, error) {
	return s.remove(ctx, s.kv.Update, parent, name, (*txn).rmdir)
}

// remove runs the removal of one name, and purges the records that it leaves.
func (s *Store) remove(ctx context.Context, run updater, parent Ino, name string,
	fn func(t *txn, dir *record, sl slot) (record, error),
) (Inode, error) {
	if err := validName(name); err != nil {
		return Inode{}, err
	}
	defer s.locks.lock(parent)()
	var rec record
	var leftover bool
	err := s.updateBy(ctx, run, parent, func(t *txn) error {
		dir, sl, err := t.findIn(parent, name)
		if err != nil {
			return err
		}
		if !sl.found {
			return ErrNotExist
		}
		if rec, err = fn(t, &dir, sl); err != nil {
			return err
		}
		leftover = s.leftover(&rec)
		t.renew(&dir)
		return nil
	})
	if err == nil && leftover {
		s.purgeSoon(ctx, rec.Ino)
	}
	return rec.Inode, err
}

func (t *txn) unlink(dir *record, sl slot) (record, error) {
	rec, err := t.target(sl.dirent)
	if err != nil {
		return rec, err
	}
	if rec.IsDir() {
		return rec, ErrIsDir
	}
	t.dropLink(&rec, dir.Ino, sl.cookie, sl.name)
	t.touchDir(dir, -1, 0)
	t.removeDirent(dir.Ino, sl)
	return rec, nil
}

func (t *txn) rmdir(dir *record, sl slot) (record, error) {
	rec, err := t.target(sl.dirent)
	switch {
	case err != nil:
		return rec, err
	case !rec.IsDir():
		return rec, ErrNotDir
	case dir.Ino == RootIno:
		return rec, ErrPermission
	case rec.Size != 0:
		return rec, ErrNotEmpty
	}
	t.removeDir(&rec)
	t.touchDir(dir, -1, -1)
	t.removeDirent(dir.Ino, sl)
	return rec, nil
}
