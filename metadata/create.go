package metadata

import (
	"context"
	"errors"
	"fmt"
)

// Create creates an inode of any type with a name. The inode belongs to the device of its
// directory. In a directory with the set-group-id bit it gets the directory's group, and if
// it is a directory, the bit too.
//
// Errors: ErrNotExist if the directory was removed; ErrNotDir; ErrExist; ErrPermission in
// the root and in PublishIno; ErrNameTooLong, also for a symlink's target; ErrInvalidName;
// ErrQuota; ErrInvalid for an unknown type, an empty target, or nanoseconds out of range.
func (s *Store) Create(ctx context.Context, parent Ino, name string, n Node) (Inode, error) {
	if err := validName(name); err != nil {
		return Inode{}, err
	}
	if err := n.normalize(); err != nil {
		return Inode{}, err
	}
	ino, err := n.Ino, error(nil)
	if ino == 0 {
		ino, err = s.newIno(ctx)
	}
	if err != nil {
		return Inode{}, err
	}
	defer s.locks.lock(parent)()
	var rec record
	err = s.grow(ctx, func(t *txn) (err error) {
		if rec, err = t.create(ino, parent, name, n); err == nil {
			t.fresh(&rec)
		}
		return err
	})
	if err != nil {
		return Inode{}, err
	}
	return rec.Inode, nil
}

// EnsureDir returns the directory with the given name in parent, and creates it, with n's
// mode and owner, if it does not exist.
//
// Errors: those of Create; ErrNotDir if the name belongs to something else.
func (s *Store) EnsureDir(ctx context.Context, parent Ino, name string, n Node) (Inode, error) {
	n.Mode = TypeDir | n.Mode.Perm()
	for {
		in, err := s.Lookup(ctx, parent, name)
		if errors.Is(err, ErrNotExist) {
			if in, err = s.Create(ctx, parent, name, n); errors.Is(err, ErrExist) {
				continue // created concurrently by another operation
			}
		}
		if err == nil && !in.IsDir() {
			err = ErrNotDir
		}
		return in, err
	}
}

// create creates an inode with a number allocated for it.
func (t *txn) create(ino, parent Ino, name string, n Node) (record, error) {
	dir, sl, err := t.findIn(parent, name)
	switch {
	case err != nil:
		return record{}, err
	case sl.found:
		return record{}, ErrExist
	case isTop(parent):
		return record{}, ErrPermission
	}
	if err = t.mayName(n.UID); err != nil {
		return record{}, err
	}
	rec := t.newRecord(ino, &dir, name, n)
	t.expire(&rec, n.Expires)
	t.enter(&dir, name, sl, &rec)
	return rec, nil
}

// enter stores a new inode, its entry and its directory.
func (t *txn) enter(dir *record, name string, sl slot, rec *record) {
	t.addDirent(dir.Ino, name, sl, rec)
	t.putInode(rec)
	t.touchDir(dir, 1, subdirs(rec))
	t.putInode(dir)
}

// subdirs returns the number of subdirectories that an entry adds: 1 or 0.
func subdirs(rec *record) int {
	if rec.IsDir() {
		return 1
	}
	return 0
}

func (t *txn) newRecord(ino Ino, dir *record, name string, n Node) record {
	rec := record{Inode: Inode{
		Ino: ino, Gen: t.s.super.gen, Mode: n.Mode,
		UID: n.UID, GID: n.GID, Nlink: 1, Rdev: n.Rdev, Target: n.Target,
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
		Device: dir.Device, Parent: dir.Ino, Name: name,
	}}
	if rec.IsDir() {
		rec.Nlink = 2
	}
	if rec.IsSymlink() {
		rec.Size = uint64(len(n.Target))
	}
	if dir.Mode&ModeSetGID != 0 {
		rec.GID = dir.GID
		if rec.IsDir() {
			rec.Mode |= ModeSetGID
		}
	}
	return rec
}

// normalize checks a node and clears the fields that do not apply to its type.
func (n *Node) normalize() error {
	if n.Mode.Type() == 0 {
		n.Mode |= TypeRegular
	}
	if n.Mode&^(sIFMT|0o7777) != 0 {
		return fmt.Errorf("%w: invalid mode %o", ErrInvalid, uint32(n.Mode))
	}
	if n.Expires.Nsec >= 1e9 {
		return fmt.Errorf("%w: %d nanoseconds", ErrInvalid, n.Expires.Nsec)
	}
	typ := n.Mode.Type()
	if typ != TypeRegular {
		n.Expires = Timespec{}
	}
	if typ != TypeChar && typ != TypeBlock {
		n.Rdev = 0
	}
	if typ != TypeSymlink {
		n.Target = ""
	}
	switch typ {
	case TypeRegular, TypeDir, TypeFIFO, TypeSocket, TypeChar, TypeBlock:
		return nil
	case TypeSymlink:
		switch {
		case n.Target == "":
			return fmt.Errorf("%w: symlink with an empty target", ErrInvalid)
		case len(n.Target) > MaxTarget:
			return ErrNameTooLong
		}
		return nil
	default:
		return fmt.Errorf("%w: unsupported file type %o", ErrInvalid, uint32(typ))
	}
}
