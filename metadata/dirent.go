package metadata

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// bucketPrefix is the length of the part of an entry's key that all slots of one hash share.
const bucketPrefix = inoKeyLen + 7

// slot is the place of a name in a directory: where it is, or where it would be added.
type slot struct {
	dirent
	cookie Cookie
	found  bool
	// mark is set if the entry in slot 0, head, has to be marked as chained so that the
	// name is found in a later slot.
	mark bool
	head dirent
	// tombstone is set if the place is occupied by a tombstone.
	tombstone bool
}

// firstCookie returns the cookie of slot 0 for a name.
func (s *Store) firstCookie(name string) Cookie {
	c := Cookie(s.hash(name) >> (slotBits + 1) << slotBits)
	if c == 0 { // 0 means the start of the directory
		c = 1 << slotBits
	}
	return c
}

func validName(name string) error {
	switch {
	case len(name) > MaxName:
		return ErrNameTooLong
	case name == "" || name == "." || name == "..":
		return ErrInvalidName
	case strings.ContainsAny(name, "/\x00"):
		return ErrInvalidName
	}
	return nil
}

// findDirent looks up a name. A missing name is no error: the slot is then the place where
// it would be added.
func (t *txn) findDirent(parent Ino, name string) (slot, error) {
	sl := slot{cookie: t.s.firstCookie(name)}
	data, err := t.kv.Get(t.key(kindDirent, uint64(parent), uint64(sl.cookie)))
	if errors.Is(err, ErrNoKey) {
		return sl, nil
	}
	if err != nil {
		return sl, err
	}
	if sl.head, err = t.readDirent(parent, data); err != nil {
		return sl, err
	}
	switch {
	case sl.head.ino != 0 && sl.head.name == name:
		sl.dirent, sl.found = sl.head, true
		return sl, nil
	case sl.head.ino != 0 && !sl.head.chained:
		sl.cookie, sl.mark = sl.cookie+1, true
		return sl, nil
	}
	return t.searchBucket(parent, name, sl)
}

// findIn reads a directory, and looks up a name in it; see findDirent.
func (t *txn) findIn(parent Ino, name string) (dir record, sl slot, err error) {
	if dir, err = t.dir(parent); err == nil {
		sl, err = t.findDirent(parent, name)
	}
	return dir, sl, err
}

func (t *txn) readDirent(parent Ino, data []byte) (dirent, error) {
	d, err := decodeDirent(data)
	if err != nil {
		err = fmt.Errorf("directory %d: %w", parent, err)
	}
	return d, err
}

// searchBucket looks for a name in all slots of its hash; sl.head is the entry in slot 0.
func (t *txn) searchBucket(parent Ino, name string, sl slot) (slot, error) {
	first := sl.cookie
	free := first // the lowest free slot found so far
	if sl.head.ino != 0 {
		free++
	}
	prefix := t.key(kindDirent, uint64(parent), uint64(first))[:bucketPrefix]
	err := t.kv.Scan(prefix, nil, func(key, value []byte) (bool, error) {
		cookie := Cookie(keyNumber(key, 1))
		d, err := t.readDirent(parent, value)
		if err != nil {
			return false, err
		}
		if d.ino != 0 && d.name == name {
			sl.dirent, sl.found, sl.cookie = d, true, cookie
			return false, nil
		}
		if cookie == free && cookie != first {
			free++
		}
		return true, nil
	})
	if err != nil || sl.found {
		return sl, err
	}
	if free > first+lastSlot {
		return sl, ErrFull
	}
	sl.cookie = free
	sl.tombstone = free == first
	return sl, nil
}

// addDirent adds an entry at the place that findDirent returned.
func (t *txn) addDirent(parent Ino, name string, sl slot, rec *record) {
	if sl.mark {
		sl.head.chained = true
		t.putDirent(parent, sl.cookie-1, &sl.head)
	}
	d := dirent{ino: rec.Ino, mode: rec.Mode.Type(), name: name}
	d.chained = sl.tombstone && sl.head.chained
	t.putDirent(parent, sl.cookie, &d)
}

// setDirent makes an existing entry refer to another inode.
func (t *txn) setDirent(parent Ino, sl slot, rec *record) {
	d := sl.dirent
	d.ino, d.mode = rec.Ino, rec.Mode.Type()
	t.putDirent(parent, sl.cookie, &d)
}

func (t *txn) putDirent(parent Ino, at Cookie, d *dirent) {
	t.set(t.key(kindDirent, uint64(parent), uint64(at)), d.encode(t.room(24+len(d.name))))
}

// removeDirent removes an entry that findDirent has found. Tombstones are removed with the
// last entry of their hash.
func (t *txn) removeDirent(parent Ino, sl slot) {
	key := t.key(kindDirent, uint64(parent), uint64(sl.cookie))
	first := sl.cookie &^ lastSlot
	if sl.cookie == first && !sl.chained {
		t.del(key)
		return
	}
	keys, err := t.keysUnder(key[:bucketPrefix], 3)
	t.fail(err)
	if sl.cookie == first && len(keys) > 1 {
		t.putDirent(parent, first, &dirent{chained: true})
		return
	}
	if sl.cookie != first && sl.head.ino == 0 && len(keys) == 2 {
		t.del(t.key(kindDirent, uint64(parent), uint64(first)))
	}
	t.del(key)
}

// ReadDir lists up to limit entries of a directory that follow a cookie, in the order of
// their cookies; fewer than limit means that the end is reached. A name that does not
// change while a directory is listed in several calls is listed exactly once, whatever else
// changes in the directory. "." and ".." are not included. A limit of 0 or less means 1024.
//
// Errors: ErrNotExist, ErrNotDir.
func (s *Store) ReadDir(ctx context.Context, dir Ino, after Cookie, limit int) ([]Entry, error) {
	if limit <= 0 {
		limit = 1024
	}
	var entries []Entry
	err := s.view(ctx, func(t *txn) error {
		rec, err := t.dir(dir)
		if err != nil {
			return err
		}
		if after+1 == 0 {
			return nil
		}
		entries = make([]Entry, 0, min(uint64(limit), rec.Size))
		entries, err = t.list(dir, after, limit, entries)
		return err
	})
	return entries, err
}

// list appends entries of a directory to entries.
func (t *txn) list(dir Ino, after Cookie, limit int, entries []Entry) ([]Entry, error) {
	prefix := t.key(kindDirent, uint64(dir))
	from := t.key(kindDirent, uint64(dir), uint64(after)+1)
	err := t.kv.Scan(prefix, from, func(key, value []byte) (bool, error) {
		d, err := t.readDirent(dir, value)
		if err != nil {
			return false, err
		}
		if d.ino == 0 {
			return true, nil
		}
		entries = append(entries, Entry{
			Name: d.name, Ino: d.ino, Type: d.mode, Cookie: Cookie(keyNumber(key, 1)),
		})
		return len(entries) < limit, nil
	})
	return entries, err
}

// direntAt reads the entry with a cookie; it returns the zero dirent if there is none.
func (t *txn) direntAt(dir Ino, at Cookie) (dirent, error) {
	data, err := t.kv.Get(t.key(kindDirent, uint64(dir), uint64(at)))
	if errors.Is(err, ErrNoKey) {
		return dirent{}, nil
	}
	if err != nil {
		return dirent{}, err
	}
	return decodeDirent(data)
}
