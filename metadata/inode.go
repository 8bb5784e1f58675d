package metadata

import (
	"errors"
	"fmt"
)

// inode reads an inode. Errors: ErrNotExist.
func (t *txn) inode(ino Ino) (record, error) {
	data, err := t.get(t.key(kindInode, uint64(ino)), ErrNotExist)
	if err != nil {
		return record{}, err
	}
	rec, err := decodeRecord(ino, data)
	if err != nil {
		return record{}, fmt.Errorf("inode %d: %w", ino, err)
	}
	rec.charged = rec.charge()
	return rec, nil
}

// target reads the inode of an entry, which must exist.
func (t *txn) target(d dirent) (record, error) {
	rec, err := t.inode(d.ino)
	if errors.Is(err, ErrNotExist) {
		return record{}, fmt.Errorf("%w: entry %q names inode %d, which is missing",
			ErrCorrupt, d.name, d.ino)
	}
	return rec, err
}

// dir reads an inode that must be a directory. Errors: ErrNotExist, ErrNotDir.
func (t *txn) dir(ino Ino) (record, error) {
	rec, err := t.inode(ino)
	if err == nil && !rec.IsDir() {
		err = ErrNotDir
	}
	return rec, err
}

// inodeRoom is a size, in bytes, that is sufficient for most inode records.
const inodeRoom = 192

func (t *txn) putInode(rec *record) {
	t.account(rec)
	t.set(t.key(kindInode, uint64(rec.Ino)), rec.encode(t.room(inodeRoom)))
}

// touchDir updates a directory whose entries changed: entries is the change of their
// number, and subdirs that of the directories among them.
func (t *txn) touchDir(dir *record, entries, subdirs int) {
	dir.Size = uint64(int64(dir.Size) + int64(entries))
	dir.Nlink = uint32(int64(dir.Nlink) + int64(subdirs))
	dir.Mtime = t.now
	dir.Ctime = t.now
}

// publishDir returns the record of an empty publish/ directory.
func (t *txn) publishDir() record {
	return record{Inode: Inode{
		Ino: PublishIno, Gen: t.s.super.gen, Mode: TypeDir | 0o755, Nlink: 2,
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
		Parent: RootIno, Name: publishName,
	}}
}
