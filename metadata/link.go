package metadata

import (
	"context"
	"fmt"
)

// Link adds a name to an inode.
//
// Errors: ErrNotExist if the inode or the directory was removed; ErrNotDir; ErrExist;
// ErrIsDir if the inode is a directory; ErrPermission if it is in PublishIno, or would be;
// ErrCrossDevice if the directory is on another device; ErrTooManyLinks; ErrQuota of the
// inode's owner; ErrNameTooLong; ErrInvalidName.
func (s *Store) Link(ctx context.Context, ino, parent Ino, name string) (Inode, error) {
	if err := validName(name); err != nil {
		return Inode{}, err
	}
	defer s.locks.lock2(ino, parent)()
	var rec record
	err := s.grow(ctx, func(t *txn) (err error) {
		rec, err = t.link(ino, parent, name)
		return err
	})
	return rec.Inode, err
}

func (t *txn) link(ino, parent Ino, name string) (record, error) {
	rec, err := t.inode(ino)
	if err != nil {
		return rec, err
	}
	dir, sl, err := t.findIn(parent, name)
	switch {
	case err != nil:
		return rec, err
	case sl.found:
		return rec, ErrExist
	case rec.IsDir():
		return rec, ErrIsDir
	case parent == PublishIno || rec.Parent == PublishIno:
		return rec, ErrPermission
	case rec.Device != dir.Device:
		return rec, ErrCrossDevice
	case rec.Nlink >= MaxLinks:
		return rec, ErrTooManyLinks
	}
	if err := t.mayName(rec.UID); err != nil {
		return rec, err
	}
	rec.Nlink++
	rec.Ctime = t.now
	t.putLink(ino, parent, sl.cookie, name)
	t.enter(&dir, name, sl, &rec)
	return rec, nil
}

// putLink stores the record of a further link.
func (t *txn) putLink(ino, parent Ino, at Cookie, name string) {
	value := encodeLink(t.room(3+len(name)), name)
	t.set(t.key(kindLink, uint64(ino), uint64(parent), uint64(at)), value)
}

func (t *txn) deleteLink(ino, parent Ino, at Cookie) {
	t.del(t.key(kindLink, uint64(ino), uint64(parent), uint64(at)))
}

// isPrimary reports whether a name is the inode's primary link.
func (i *record) isPrimary(parent Ino, name string) bool {
	return i.Parent == parent && i.Name == name
}

// dropLink removes one link of an inode that is not a directory and stores the inode, or
// removes it with its last link. The caller handles the entry itself.
func (t *txn) dropLink(rec *record, parent Ino, at Cookie, name string) {
	rec.Ctime = t.now
	if rec.Nlink <= 1 {
		rec.Nlink = 0
		t.removeInode(rec)
		return
	}
	rec.Nlink--
	if rec.isPrimary(parent, name) {
		t.promoteLink(rec)
	} else {
		t.deleteLink(rec.Ino, parent, at)
	}
	t.putInode(rec)
}

// promoteLink makes one of the further links the primary one.
func (t *txn) promoteLink(rec *record) {
	var link []byte
	var name string
	err := t.kv.Scan(t.key(kindLink, uint64(rec.Ino)), nil, func(key, value []byte) (bool, error) {
		link = append(t.room(len(key)), key...)
		var err error
		name, err = decodeLink(value)
		return false, err
	})
	if err == nil && link == nil {
		err = fmt.Errorf("%w: inode %d: link records are missing", ErrCorrupt, rec.Ino)
	}
	if err != nil {
		t.fail(err)
		return
	}
	rec.Parent, rec.Name = Ino(keyNumber(link, 1)), name
	t.del(link)
}

// linkPlace is one link of an inode.
type linkPlace struct {
	dir  Ino
	at   Cookie
	name string
}

// moveLink records that one link of an inode has moved. The caller stores the entries and
// the inode.
func (t *txn) moveLink(rec *record, from, to linkPlace) {
	rec.Ctime = t.now
	if rec.isPrimary(from.dir, from.name) {
		rec.Parent, rec.Name = to.dir, to.name
		return
	}
	t.deleteLink(rec.Ino, from.dir, from.at)
	t.putLink(rec.Ino, to.dir, to.at, to.name)
}
