package metadata

import "context"

// PublishIno is the directory publish/. It exists in every store, without an entry in the
// root, and belongs to no device: a file in it stays on its own device. Files enter it only
// by Publish and Put, and Rename or MoveDevice moves one out, to a directory of its device
// or of another.
const PublishIno Ino = 16

// publishName is the name of PublishIno in paths.
const publishName = "publish"

// publishDir returns the record of an empty publish/ directory.
func (t *txn) publishDir() record {
	return record{Inode: Inode{
		Ino: PublishIno, Gen: t.s.super.gen, Mode: TypeDir | 0o755, Nlink: 2,
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
		Parent: RootIno, Name: publishName,
	}}
}

// isPublishDir reports whether an inode can be PublishIno.
func (i *record) isPublishDir() bool {
	return i.IsDir() && i.Device == "" && i.Parent == RootIno && i.Name == publishName
}

// isTop reports whether a directory exists without an entry.
func isTop(ino Ino) bool { return ino == RootIno || ino == PublishIno }

// Publish moves a regular file with one link into PublishIno under a new name, as Rename
// does with NoReplace. The file stays on its device, and loses its key.
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
