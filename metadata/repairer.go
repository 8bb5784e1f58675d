package metadata

import "errors"

// repairer fixes problems in a transaction, with one method for each kind.
type repairer struct{ *txn }

// ofInode returns a repair by fix of the inode that the problem concerns.
func ofInode(fix func(repairer, Problem, *record) error) func(repairer, Problem) error {
	return func(r repairer, p Problem) error {
		rec, err := r.inode(p.Ino)
		if err != nil {
			return err
		}
		return fix(r, p, &rec)
	}
}

// ofEntry returns a repair by fix of the entry that the problem concerns, whose inode and
// directory both exist.
func ofEntry(fix func(repairer, Problem, foundEntry) error) func(repairer, Problem) error {
	return func(r repairer, p Problem) error {
		e, err := r.entryOf(p)
		if err != nil {
			return err
		}
		if e.rec == nil || e.dir == nil {
			return ErrChanged
		}
		return fix(r, p, e)
	}
}

// foundEntry is the entry that a problem concerns, with its inode and its directory, which
// are nil if they are missing.
type foundEntry struct {
	dirent
	rec, dir *record
}

// entryOf reads the entry that a problem concerns.
func (r repairer) entryOf(p Problem) (e foundEntry, err error) {
	if e.dirent, err = r.direntAt(p.Parent, p.cookie); err != nil {
		return e, err
	}
	if e.ino != p.Ino || e.ino == 0 || e.name != p.Name {
		return e, ErrChanged
	}
	if e.rec, err = r.maybe(e.ino); err != nil {
		return e, err
	}
	e.dir, err = r.maybe(p.Parent)
	return e, err
}

// maybe reads an inode; it returns nil if there is none.
func (r repairer) maybe(ino Ino) (*record, error) {
	rec, err := r.inode(ino)
	if errors.Is(err, ErrNotExist) {
		return nil, nil
	}
	return &rec, err
}

// eraseEntry removes an entry, and recounts its directory if that exists.
func (r repairer) eraseEntry(p Problem, e foundEntry) error {
	if e.dir == nil {
		r.del(r.key(kindDirent, uint64(p.Parent), uint64(p.cookie)))
		return nil
	}
	sl := slot{dirent: e.dirent, cookie: p.cookie, found: true}
	if first := p.cookie &^ lastSlot; first != p.cookie {
		var err error
		if sl.head, err = r.direntAt(p.Parent, first); err != nil {
			return err
		}
	}
	r.removeDirent(p.Parent, sl)
	return r.recount(e.dir)
}

// recount counts a directory's entries and stores the directory.
func (r repairer) recount(dir *record) error {
	dir.Size, dir.Nlink = 0, 2
	prefix := r.key(kindDirent, uint64(dir.Ino))
	err := r.kv.Scan(prefix, nil, func(_, value []byte) (bool, error) {
		d, err := r.readDirent(dir.Ino, value)
		if err == nil && d.ino != 0 {
			dir.Size++
			if d.mode == TypeDir {
				dir.Nlink++
			}
		}
		return true, err
	})
	r.putInode(dir)
	return err
}
