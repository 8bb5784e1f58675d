package metadata

import (
	"context"
	"errors"
)

// HoldXattrs keeps the attributes of an inode that is about to lose its last name. They can
// be read and changed until ReleaseXattrs, which the caller must call whether or not the
// name is removed. They don't outlive the process.
func (s *Store) HoldXattrs(ino Ino) { s.held.Store(ino, nil) }

// HoldNameless is HoldXattrs for an inode that has already lost its last name. One that is not held yet has lost its attributes with
// it, and can be given new ones; of one that is held, the mode, the owner and the times are stored.
//
// Errors: those of the KV; the caller must call ReleaseXattrs even after an error.
func (s *Store) HoldNameless(ctx context.Context, in Inode) error {
	s.held.Store(in.Ino, nil)
	defer s.locks.lock(in.Ino)()
	return s.update(ctx, func(t *txn) error {
		rec, err := t.bearer(in.Ino)
		switch {
		case errors.Is(err, ErrNotExist):
			in.Nlink = 0
			t.hold(&record{Inode: in})
			return nil
		case err == nil && rec.Nlink == 0:
			t.rehold(&rec, in)
		}
		return err
	})
}

// rehold stores the changed inode of a record that is held.
func (t *txn) rehold(rec *record, in Inode) {
	if rec.UID != in.UID && rec.xattrs > 0 {
		t.refund(rec)
		n, err := t.xattrBytes(rec.Ino)
		t.fail(err)
		t.use(in.UID, 0, int64(n))
	}
	rec.Mode, rec.UID, rec.GID, rec.Atime, rec.Mtime, rec.Ctime = in.Mode, in.UID, in.GID, in.Atime, in.Mtime, in.Ctime
	t.hold(rec)
}

// nameless are the inodes without names that the process before held.
type nameless struct {
	// keepNameless has those of this process outlive it.
	keepNameless  bool
	foundNameless map[Ino]Inode // immutable after Open
}

// Nameless returns the inodes without names that the process before held, as they were when
// they lost their last name. They are held until ReleaseXattrs. Without
// Options.KeepNameless there are none.
func (n *nameless) Nameless() map[Ino]Inode { return n.foundNameless }

// ReleaseXattrs ends HoldXattrs. The attributes are removed if the inode has no name.
//
// Errors: those of the KV; the next Open then removes what is left.
func (s *Store) ReleaseXattrs(ctx context.Context, ino Ino) error {
	s.held.Delete(ino)
	var nameless bool
	err := s.view(ctx, func(t *txn) error {
		_, err := t.kv.Get(t.key(kindPurge, uint64(ino)))
		nameless = err == nil
		if errors.Is(err, ErrNoKey) {
			err = nil
		}
		return err
	})
	if err != nil || !nameless {
		return err
	}
	if err = s.update(ctx, func(t *txn) error { return t.unhold(ino) }); err != nil {
		return err
	}
	return s.purge(ctx, ino)
}

// unhold subtracts the attributes of an inode without names from its owner's usage.
func (t *txn) unhold(ino Ino) error {
	key := t.key(kindPurge, uint64(ino))
	data, err := t.kv.Get(key)
	if errors.Is(err, ErrNoKey) {
		return nil
	}
	if err != nil {
		return err
	}
	rec, err := decodeRecord(ino, data)
	if errors.Is(err, ErrCorrupt) {
		return nil // its attributes were never held
	}
	if err != nil {
		return err
	}
	t.refund(&rec)
	t.set(key, encodeNumber(t.room(2), 1))
	return nil
}

// hold stores an inode without names whose attributes are held. A later run of the program
// reads from it only that the inode is to be purged.
func (t *txn) hold(rec *record) {
	t.set(t.key(kindPurge, uint64(rec.Ino)), rec.encode(t.room(inodeRoom)))
}

// bearer reads an inode for its attributes: one that has names, or whose attributes are
// held.
//
// Errors: ErrNotExist.
func (t *txn) bearer(ino Ino) (record, error) {
	rec, err := t.inode(ino)
	if !errors.Is(err, ErrNotExist) || !t.isHeld(ino) {
		return rec, err
	}
	data, err := t.get(t.key(kindPurge, uint64(ino)), ErrNotExist)
	if err != nil {
		return record{}, err
	}
	return decodeRecord(ino, data)
}

// putBearer stores a record that bearer has read.
func (t *txn) putBearer(rec *record) {
	if rec.Nlink == 0 {
		t.hold(rec)
	} else {
		t.putInode(rec)
	}
}
