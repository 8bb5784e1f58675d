package metadata

import (
	"errors"
	"fmt"
)

func (r repairer) orphan(_ Problem, rec *record) error {
	sl, err := r.findDirent(rec.Parent, rec.Name)
	if err != nil {
		return err
	}
	if sl.found && sl.ino == rec.Ino {
		return ErrChanged
	}
	return r.adopt(rec)
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
	r.removeInode(rec)
	return nil
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
	r.addDirent(parent, name, sl, rec)
	r.putInode(rec)
	return true, r.recount(dir)
}

func (r repairer) nlink(p Problem, rec *record) error {
	if rec.IsDir() {
		return r.recount(rec)
	}
	if uint64(rec.Nlink) != p.Got || p.Want == 0 || p.Want > MaxLinks {
		return ErrChanged
	}
	rec.Nlink = uint32(p.Want)
	r.putInode(rec)
	return nil
}

func (r repairer) size(_ Problem, rec *record) error {
	if !rec.IsDir() {
		return ErrNotDir
	}
	return r.recount(rec)
}

func (r repairer) count(p Problem, rec *record) error {
	rec.xattrs, rec.maps, rec.firstMap, rec.Parts = 0, 0, 0, 0
	err := r.kv.Scan(r.key(kindXattr, uint64(p.Ino)), nil, func(_, _ []byte) (bool, error) {
		rec.xattrs++
		return true, nil
	})
	if err != nil {
		return err
	}
	err = r.kv.Scan(r.key(kindMapping, uint64(p.Ino)), nil, func(key, _ []byte) (bool, error) {
		if rec.maps == 0 {
			rec.firstMap = keyNumber(key, 1)
		}
		rec.maps++
		return true, nil
	})
	if err != nil {
		return err
	}
	err = r.kv.Scan(r.key(kindPart, uint64(p.Ino)), nil, func(_, _ []byte) (bool, error) {
		rec.Parts++
		return true, nil
	})
	r.putInode(rec)
	return err
}

func (r repairer) taken(_ Problem, rec *record) error {
	if !rec.Taken || rec.Parent == PublishIno {
		return ErrChanged
	}
	rec.Taken = false
	r.putInode(rec)
	return nil
}

func (r repairer) missingPublish(Problem) error {
	old, err := r.maybe(PublishIno)
	if err != nil {
		return err
	}
	if old != nil && old.isPublishDir() {
		return ErrChanged
	}
	publish := r.publishDir()
	return r.recount(&publish)
}
