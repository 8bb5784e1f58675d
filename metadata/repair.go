package metadata

import (
	"context"
	"errors"
	"fmt"
)

// Repair fixes one problem as described at the constants of ProblemKind, in one
// transaction. Fixing one problem may reveal another, or fix it too, so callers repeat
// Check and Repair until Check finds nothing. The tree must not be changed otherwise
// meanwhile, or Repair may return ErrChanged.
//
// Errors: ErrChanged if the problem no longer exists; ErrInvalid for an unknown kind.
func (s *Store) Repair(ctx context.Context, p Problem) error {
	if p.Kind == DanglingRecords {
		return s.repairDangling(ctx, p)
	}
	repairs := map[ProblemKind]func(repairer, Problem) error{
		CorruptRecord:  repairer.corrupt,
		DanglingEntry:  repairer.danglingEntry,
		WrongEntryType: repairer.entryType,
		SecondEntry:    repairer.secondEntry,
		Orphan:         repairer.orphan,
		Circle:         repairer.circle,
		WrongPrimary:   repairer.primary,
		MissingLink:    repairer.missingLink,
		DanglingLink:   repairer.danglingLink,
		WrongNlink:     repairer.nlink,
		WrongSize:      repairer.size,
		WrongCount:     repairer.count,
		DanglingKey:    repairer.danglingKey,
		MissingKey:     repairer.missingKey,
		DanglingDevice: repairer.danglingDevice,
		MissingDevice:  repairer.missingDevice,

		DanglingBinding: repairer.danglingBinding,
		MissingBinding:  repairer.missingBinding,
		MissingPublish:  repairer.missingPublish,
		DanglingExpiry:  repairer.danglingExpiry,
		MissingExpiry:   repairer.missingExpiry,
		WrongTaken:      repairer.taken,
	}
	repair := repairs[p.Kind]
	if repair == nil {
		return fmt.Errorf("%w: %v", ErrInvalid, p.Kind)
	}
	err := s.update(ctx, func(t *txn) error { return repair(repairer{t}, p) })
	if errors.Is(err, ErrNotExist) {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("repair %v: %w", p, err)
	}
	return nil
}

func (s *Store) repairDangling(ctx context.Context, p Problem) error {
	err := s.update(ctx, func(t *txn) error {
		_, err := t.inode(p.Ino)
		if err == nil {
			return ErrChanged
		}
		if !errors.Is(err, ErrNotExist) {
			return err
		}
		if _, err := t.deleteUnder(t.key1(kindLink, uint64(p.Ino)), t.s.purgeBatch); err != nil {
			return err
		}
		return t.kv.Set(t.key1(kindPurge, uint64(p.Ino)), encodeNumber(nil, 1))
	})
	if err != nil {
		return fmt.Errorf("repair %v: %w", p, err)
	}
	return s.purge(ctx, p.Ino)
}

// repairer fixes problems in a transaction, with one method for each kind.
type repairer struct{ *txn }

func (r repairer) corrupt(p Problem) error {
	if p.Key == "" {
		return ErrInvalid
	}
	key := []byte(p.Key)
	value, err := r.kv.Get(key)
	if errors.Is(err, ErrNoKey) {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	if err := decodable(key, value); err == nil {
		return ErrChanged
	} else if !errors.Is(err, ErrCorrupt) {
		return err
	}
	return r.kv.Delete(key)
}

// decodable tries to decode any record that Check decodes.
func decodable(key, value []byte) (err error) {
	switch key[0] {
	case kindInode:
		_, err = decodeRecord(keyIno(key), value)
	case kindDirent:
		_, err = decodeDirent(value)
	case kindLink:
		_, err = decodeLink(value)
	case kindXattr:
		_, err = decodeXattr(value)
	case kindMapping:
		_, err = decodeMapping(keySecond(key), value)
	case kindBinding:
		_, err = decodeBinding(value)
	case kindExpiry:
		_, _, err = parseExpiry(key, value)
	case kindKey:
		_, err = decodeNumber("key", value)
	case kindDevice:
		_, err = decodeDevice("", value)
	}
	return err
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
		return r.kv.Delete(r.key2(kindDirent, uint64(p.Parent), uint64(p.cookie)))
	}
	sl := slot{dirent: e.dirent, cookie: p.cookie, found: true}
	if first := p.cookie &^ lastSlot; first != p.cookie {
		var err error
		if sl.head, err = r.direntAt(p.Parent, first); err != nil {
			return err
		}
	}
	if err := r.removeDirent(p.Parent, sl); err != nil {
		return err
	}
	return r.recount(e.dir)
}

// recount counts a directory's entries and stores the directory.
func (r repairer) recount(dir *record) error {
	dir.Size, dir.Nlink = 0, 2
	prefix := r.key1(kindDirent, uint64(dir.Ino))
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
	if err != nil {
		return err
	}
	return r.putInode(dir)
}

func (r repairer) danglingEntry(p Problem) error {
	e, err := r.entryOf(p)
	if err != nil {
		return err
	}
	if e.dir != nil && !e.dir.IsDir() {
		e.dir = nil
	}
	if e.rec != nil && e.dir != nil {
		return ErrChanged
	}
	return r.eraseEntry(p, e)
}

func (r repairer) entryType(p Problem) error {
	e, err := r.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.dir == nil {
		return ErrChanged
	}
	e.mode = e.rec.Mode.Type()
	if err := r.putDirent(p.Parent, p.cookie, &e.dirent); err != nil {
		return err
	}
	return r.recount(e.dir)
}

func (r repairer) secondEntry(p Problem) error {
	e, err := r.entryOf(p)
	if err != nil {
		return err
	}
	if e.rec == nil || e.dir == nil || !e.rec.IsDir() {
		return ErrChanged
	}
	return r.eraseEntry(p, e)
}
