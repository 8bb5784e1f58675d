package metadata

import "context"

// Unlink removes a name that does not belong to a directory, and returns the inode in its
// state afterwards. If its Nlink is 0, its records are removed too, and the returned inode
// still has its last place and key.
//
// Errors: ErrNotExist; ErrNotDir; ErrIsDir; ErrNameTooLong; ErrInvalidName.
func (s *Store) Unlink(ctx context.Context, parent Ino, name string) (Inode, error) {
	one := [1]Removal{{Name: name}}
	s.UnlinkAll(ctx, parent, one[:], false)
	return one[0].Inode, one[0].Err
}

// Rmdir removes an empty directory, and returns it in its state afterwards: Nlink is 0 and
// the records are gone.
//
// Errors: ErrNotExist; ErrNotDir; ErrNotEmpty; ErrPermission for the
// directory of a device; ErrNameTooLong; ErrInvalidName.
func (s *Store) Rmdir(ctx context.Context, parent Ino, name string) (Inode, error) {
	one := [1]Removal{{Name: name}}
	remover{s, s.kv.Update, parent, (*txn).rmdir}.remove(ctx, one[:])
	return one[0].Inode, one[0].Err
}

// UnlinkBatch is a number of names that UnlinkAll removes in one transaction, unless they have many
// records. The names of the directory can't change meanwhile.
const UnlinkBatch = 256

// removeChunk is the approximate size, in bytes, of the keys that the removal of a name writes.
const removeChunk = 128

// Removal is a name to remove, and the outcome.
type Removal struct {
	Name string
	// Receipts are noted in the same transaction. They stay until Receipts.Drop.
	Receipts []string
	// Inode and Err are set to what Unlink returns.
	Inode Inode
	Err   error
}

// UnlinkAll is Unlink for several names of one directory, in few transactions: each name is removed
// completely or not at all, whatever happens to the others. With soon, for files of fleeting memory, it may return before it has
// written the removals; see Deferrer.
func (s *Store) UnlinkAll(ctx context.Context, parent Ino, names []Removal, soon bool) {
	run := s.kv.Update
	if soon {
		run = s.soon()
	}
	remover{s, run, parent, (*txn).unlink}.remove(ctx, names)
}

// remover removes names from a directory.
type remover struct {
	s      *Store
	run    updater
	parent Ino
	// fn removes the name that is in a slot; see one.
	fn func(t *txn, dir *record, sl slot) (record, error)
}

// remove removes names in one transaction, and purges the records that it leaves. If the transaction
// fails, or is too large, it removes each half of the names on its own, so that one name does not
// affect the others.
func (r remover) remove(ctx context.Context, names []Removal) {
	if len(names) == 0 {
		return
	}
	left, err := r.try(ctx, names)
	switch half := len(names) / 2; {
	case err == nil:
		for _, ino := range left {
			r.s.purgeSoon(ctx, ino)
		}
	case half > 0:
		r.remove(ctx, names[:half])
		r.remove(ctx, names[half:])
	default:
		names[0].Inode, names[0].Err = Inode{}, err
	}
}

// try removes names in one transaction, and returns the inodes that have more records than that
// removes.
func (r remover) try(ctx context.Context, names []Removal) (left []Ino, err error) {
	defer r.s.locks.lock(r.parent)()
	err = r.s.updateBy(ctx, r.run, r.parent, func(t *txn) error {
		t.chunk = max(t.chunk, min(len(names)*removeChunk, keptArena))
		left = left[:0]
		dir, missing := t.dir(r.parent)
		if missing != nil {
			return missing
		}
		some := false
		for i := range names {
			one := &names[i]
			rec, refused := r.one(t, &dir, one)
			if refused != nil {
				one.Inode, one.Err = Inode{}, refused
				continue
			}
			one.Inode, one.Err = rec.Inode, nil
			if t.err != nil {
				return t.err
			}
			some = true
			if r.s.leftover(&rec) {
				left = append(left, rec.Ino)
			}
		}
		if some {
			t.renew(&dir)
		}
		return nil
	})
	return left, err
}

// one removes one name, or returns why that can't be done, without having written anything.
func (r remover) one(t *txn, dir *record, n *Removal) (record, error) {
	if err := validName(n.Name); err != nil {
		return record{}, err
	}
	sl, err := t.findDirent(dir.Ino, n.Name)
	if err == nil && !sl.found {
		err = ErrNotExist
	}
	if err != nil {
		return record{}, err
	}
	rec, err := r.fn(t, dir, sl)
	if err == nil {
		for _, text := range n.Receipts {
			t.set(t.keyString(kindReceipt, text), encodeNumber(t.room(2), 1))
		}
	}
	return rec, err
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
