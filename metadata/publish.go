package metadata

import "context"

// Take marks a file in PublishIno as received. It only remains to remove the file, which
// the next run does if this one dies before. A file can be taken once: the second call
// returns ErrNotExist. A received file can only be removed.
//
// Errors: ErrNotExist, also for a file elsewhere.
func (s *Store) Take(ctx context.Context, ino Ino) error {
	_, err := s.change(ctx, ino, nil, func(_ *txn, rec *record) error {
		if rec.Parent != PublishIno || rec.Taken {
			return ErrNotExist
		}
		rec.Taken = true
		return nil
	})
	return err
}

// Publish moves a regular file with one link into PublishIno under a new name, as Rename
// does with NoReplace. The file stays on its device, and loses its key and those of its
// parts.
//
// Errors: those of Rename; ErrExist if the name is taken; ErrIsDir; ErrInvalid if it is not
// a regular file; ErrInvalidKey for a name that is not a valid key; ErrTooManyLinks;
// ErrPermission for a file that is in PublishIno already.
func (s *Store) Publish(ctx context.Context, parent Ino, name, newName string) (Inode, error) {
	if err := validName(newName); err != nil {
		return Inode{}, err
	}
	if err := ValidKey(newName); err != nil {
		return Inode{}, err
	}
	r := Rename{From: parent, Name: name, To: PublishIno, NewName: newName, Flags: NoReplace}
	res, err := s.rename(ctx, r, (*renameOp).publish)
	return res.Moved, err
}
