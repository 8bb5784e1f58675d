package metadata

import (
	"errors"
	"fmt"
)

func (t *txn) repairOrphan(p Problem) error {
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	sl, err := t.findDirent(rec.Parent, rec.Name)
	if err != nil {
		return err
	}
	if sl.found && sl.ino == rec.Ino {
		return ErrChanged
	}
	return t.adopt(&rec)
}

// adopt gives an entry to an inode that has none: where it says it was, or
// else in its device's directory. An inode that nobody takes is removed.
func (t *txn) adopt(rec *record) error {
	if !rec.IsDir() {
		rec.Nlink = 1
	}
	ok, err := t.adoptAs(rec, rec.Parent, rec.Name)
	if ok || err != nil {
		return err
	}
	d, err := t.device(rec.Device)
	if err == nil {
		ok, err = t.adoptAs(rec, d.Ino, fmt.Sprintf("#%d", rec.Ino))
	}
	if ok || err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	rec.Nlink = 0
	return t.removeInode(rec)
}

// adoptAs gives an inode an entry, if the place is free and outside of it.
func (t *txn) adoptAs(rec *record, parent Ino, name string) (ok bool, err error) {
	dir, err := t.maybe(parent)
	if err != nil || dir == nil || !dir.IsDir() || validName(name) != nil {
		return false, err
	}
	err = t.outside(rec, parent)
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotExist) || errors.Is(err, ErrCorrupt) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sl, err := t.findDirent(parent, name)
	if err != nil || sl.found {
		return false, err
	}
	rec.Parent, rec.Name = parent, name
	if err := t.addDirent(parent, name, sl, rec); err != nil {
		return false, err
	}
	if err := t.putInode(rec); err != nil {
		return false, err
	}
	return true, t.recount(dir)
}

// repairCircle takes a directory out of the circle that it is part of.
func (t *txn) repairCircle(p Problem) error {
	e, err := t.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.dir == nil {
		return ErrChanged
	}
	if err = t.eraseEntry(p, e); err != nil {
		return err
	}
	// The directory may be its own parent, and then it was just stored.
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	return t.adopt(&rec)
}

func (t *txn) repairPrimary(p Problem) error {
	e, err := t.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	if err := t.deleteLink(p.Ino, p.Parent, p.cookie); err != nil {
		return err
	}
	e.rec.Parent, e.rec.Name = p.Parent, p.Name
	return t.putInode(e.rec)
}

func (t *txn) repairMissingLink(p Problem) error {
	e, err := t.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	return t.putLink(p.Ino, p.Parent, p.cookie, p.Name)
}

func (t *txn) repairDanglingLink(p Problem) error {
	d, err := t.direntAt(p.Parent, p.cookie)
	if err != nil {
		return err
	}
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	if d.ino == p.Ino && d.name == p.Name && !rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	return t.deleteLink(p.Ino, p.Parent, p.cookie)
}

func (t *txn) repairNlink(p Problem) error {
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	if rec.IsDir() {
		return t.recount(&rec)
	}
	if uint64(rec.Nlink) != p.Got || p.Want == 0 || p.Want > MaxLinks {
		return ErrChanged
	}
	rec.Nlink = uint32(p.Want)
	return t.putInode(&rec)
}

func (t *txn) repairSize(p Problem) error {
	rec, err := t.dir(p.Ino)
	if err != nil {
		return err
	}
	return t.recount(&rec)
}

func (t *txn) repairCount(p Problem) error {
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	rec.xattrs, rec.maps, rec.firstMap = 0, 0, 0
	err = t.kv.Scan(t.key1(kindXattr, uint64(p.Ino)), nil, func(_, _ []byte) (bool, error) {
		rec.xattrs++
		return true, nil
	})
	if err != nil {
		return err
	}
	err = t.kv.Scan(t.key1(kindMapping, uint64(p.Ino)), nil, func(key, _ []byte) (bool, error) {
		if rec.maps == 0 {
			rec.firstMap = keySecond(key)
		}
		rec.maps++
		return true, nil
	})
	if err != nil {
		return err
	}
	return t.putInode(&rec)
}

func (t *txn) repairDanglingKey(p Problem) error {
	ino, err := t.keyIno(p.Key)
	if err != nil {
		return err
	}
	rec, err := t.maybe(ino)
	if err != nil {
		return err
	}
	if rec != nil && rec.Key == p.Key {
		return ErrChanged
	}
	return t.kv.Delete(t.keyString(kindKey, p.Key))
}

func (t *txn) repairMissingKey(p Problem) error {
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	if rec.Key != p.Key {
		return ErrChanged
	}
	owner, err := t.keyIno(p.Key)
	switch {
	case errors.Is(err, ErrNotExist):
		return t.kv.Set(t.keyString(kindKey, p.Key), encodeNumber(nil, uint64(p.Ino)))
	case err != nil:
		return err
	case owner == p.Ino:
		return ErrChanged
	}
	rec.Key = ""
	return t.putInode(&rec)
}

func (t *txn) repairDanglingDevice(p Problem) error {
	d, err := t.device(p.Device)
	if err != nil {
		return err
	}
	if d.Ino != p.Ino {
		return ErrChanged
	}
	return t.kv.Delete(t.keyString(kindDevice, string(p.Device)))
}

func (t *txn) repairMissingDevice(p Problem) error {
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	if _, err := t.device(DeviceName(rec.Name)); !errors.Is(err, ErrNotExist) {
		return errors.Join(err, ErrChanged)
	}
	rec.Device = DeviceName(rec.Name)
	if err := t.putInode(&rec); err != nil {
		return err
	}
	return t.putDevice(&DeviceRecord{Name: rec.Device, Ino: rec.Ino})
}
