package metadata

import (
	"errors"
	"fmt"
)

func (r repairer) orphan(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	sl, err := r.findDirent(rec.Parent, rec.Name)
	if err != nil {
		return err
	}
	if sl.found && sl.ino == rec.Ino {
		return ErrChanged
	}
	return r.adopt(&rec)
}

// adopt adds an entry for an inode that has none: at its recorded parent and name, or else
// in its device's directory. If neither is possible, the inode is removed.
func (r repairer) adopt(rec *record) error {
	if !rec.IsDir() {
		rec.Nlink = 1
	}
	ok, err := r.adoptAs(rec, rec.Parent, rec.Name)
	if ok || err != nil {
		return err
	}
	d, err := r.device(rec.Device)
	if err == nil {
		ok, err = r.adoptAs(rec, d.Ino, fmt.Sprintf("#%d", rec.Ino))
	}
	if ok || err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	rec.Nlink = 0
	return r.removeInode(rec)
}

// adoptAs adds an entry for an inode, if the place is free and not inside of the inode.
func (r repairer) adoptAs(rec *record, parent Ino, name string) (ok bool, err error) {
	dir, err := r.maybe(parent)
	if err != nil || dir == nil || !dir.IsDir() || validName(name) != nil {
		return false, err
	}
	err = r.outside(rec, parent)
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotExist) || errors.Is(err, ErrCorrupt) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sl, err := r.findDirent(parent, name)
	if err != nil || sl.found {
		return false, err
	}
	rec.Parent, rec.Name = parent, name
	if err := r.addDirent(parent, name, sl, rec); err != nil {
		return false, err
	}
	if err := r.putInode(rec); err != nil {
		return false, err
	}
	return true, r.recount(dir)
}

// circle removes a directory from the circle that it is part of.
func (r repairer) circle(p Problem) error {
	e, err := r.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.dir == nil {
		return ErrChanged
	}
	if err = r.eraseEntry(p, e); err != nil {
		return err
	}
	// The directory may be its own parent, and then it has just been stored.
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	return r.adopt(&rec)
}

func (r repairer) primary(p Problem) error {
	e, err := r.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	if err := r.deleteLink(p.Ino, p.Parent, p.cookie); err != nil {
		return err
	}
	e.rec.Parent, e.rec.Name = p.Parent, p.Name
	return r.putInode(e.rec)
}

func (r repairer) missingLink(p Problem) error {
	e, err := r.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	return r.putLink(p.Ino, p.Parent, p.cookie, p.Name)
}

func (r repairer) danglingLink(p Problem) error {
	d, err := r.direntAt(p.Parent, p.cookie)
	if err != nil {
		return err
	}
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	if d.ino == p.Ino && d.name == p.Name && !rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	return r.deleteLink(p.Ino, p.Parent, p.cookie)
}

func (r repairer) nlink(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	if rec.IsDir() {
		return r.recount(&rec)
	}
	if uint64(rec.Nlink) != p.Got || p.Want == 0 || p.Want > MaxLinks {
		return ErrChanged
	}
	rec.Nlink = uint32(p.Want)
	return r.putInode(&rec)
}

func (r repairer) size(p Problem) error {
	rec, err := r.dir(p.Ino)
	if err != nil {
		return err
	}
	return r.recount(&rec)
}

func (r repairer) count(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	rec.xattrs, rec.maps, rec.firstMap = 0, 0, 0
	err = r.kv.Scan(r.key1(kindXattr, uint64(p.Ino)), nil, func(_, _ []byte) (bool, error) {
		rec.xattrs++
		return true, nil
	})
	if err != nil {
		return err
	}
	err = r.kv.Scan(r.key1(kindMapping, uint64(p.Ino)), nil, func(key, _ []byte) (bool, error) {
		if rec.maps == 0 {
			rec.firstMap = keySecond(key)
		}
		rec.maps++
		return true, nil
	})
	if err != nil {
		return err
	}
	return r.putInode(&rec)
}

func (r repairer) danglingKey(p Problem) error {
	ino, err := r.keyIno(p.Key)
	if err != nil {
		return err
	}
	rec, err := r.maybe(ino)
	if err != nil {
		return err
	}
	if rec != nil && rec.Key == p.Key {
		return ErrChanged
	}
	return r.kv.Delete(r.keyString(kindKey, p.Key))
}

func (r repairer) missingKey(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	if rec.Key != p.Key {
		return ErrChanged
	}
	owner, err := r.keyIno(p.Key)
	switch {
	case errors.Is(err, ErrNotExist):
		return r.kv.Set(r.keyString(kindKey, p.Key), encodeNumber(nil, uint64(p.Ino)))
	case err != nil:
		return err
	case owner == p.Ino:
		return ErrChanged
	}
	rec.Key = ""
	return r.putInode(&rec)
}

func (r repairer) danglingDevice(p Problem) error {
	d, err := r.device(p.Device)
	if err != nil {
		return err
	}
	if d.Ino != p.Ino {
		return ErrChanged
	}
	return r.kv.Delete(r.keyString(kindDevice, string(p.Device)))
}

func (r repairer) missingDevice(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	if _, err := r.device(DeviceName(rec.Name)); !errors.Is(err, ErrNotExist) {
		return errors.Join(err, ErrChanged)
	}
	rec.Device = DeviceName(rec.Name)
	if err := r.putInode(&rec); err != nil {
		return err
	}
	return r.putDevice(&DeviceRecord{Name: rec.Device, Ino: rec.Ino})
}
