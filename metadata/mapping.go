package metadata

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// sortedMappings returns the mappings sorted by file offset.
//
// Errors: ErrInvalid if one is empty, ends beyond the largest offset, or overlaps another.
func sortedMappings(maps []Mapping) ([]Mapping, error) {
	maps = slices.Clone(maps)
	slices.SortFunc(maps, func(a, b Mapping) int { return cmp.Compare(a.FileOff, b.FileOff) })
	var end uint64
	for i := range maps {
		m := &maps[i]
		switch {
		case m.Len == 0 || m.FileOff+m.Len < m.FileOff:
			return nil, fmt.Errorf("%w: mapping of %d bytes at %d", ErrInvalid, m.Len, m.FileOff)
		case m.FileOff < end:
			return nil, fmt.Errorf("%w: mappings overlap at %d", ErrInvalid, m.FileOff)
		}
		end = m.FileOff + m.Len
	}
	return maps, nil
}

// saveBatch bounds the number of mappings that one transaction changes.
const saveBatch = 2048

// SaveContent replaces all mappings of an inode by maps, and changes the inode by fn, as
// Update does. fn may be nil. Mappings that are stored already are not written again, so
// saving a large object again costs only what has changed.
//
// It is one transaction unless more than saveBatch mappings change: then these are written
// first, in several transactions, and the inode with the last. A crash in between leaves a
// mix of old and new mappings, all of an epoch that has ended.
//
// Errors: those of Update; ErrInvalid if mappings are empty or overlap.
func (s *Store) SaveContent(ctx context.Context, ino Ino, fn func(*Inode) error, maps []Mapping) (Inode, error) {
	maps, err := sortedMappings(maps)
	if err != nil {
		return Inode{}, err
	}
	defer s.locks.lock(ino)()
	var rec record
	for whole := false; !whole; {
		err = s.update(ctx, func(t *txn) (err error) {
			if rec, err = t.inode(ino); err != nil {
				return err
			}
			if whole, err = t.replaceMappings(&rec, maps, saveBatch); err != nil {
				return err
			}
			if whole {
				err = rec.apply(fn)
			}
			if err == nil {
				t.putInode(&rec)
			}
			return err
		})
		if err != nil {
			return Inode{}, err
		}
	}
	return rec.Inode, nil
}

// Mappings returns the mappings of an inode, ordered by FileOff.
//
// Errors: ErrNotExist.
func (s *Store) Mappings(ctx context.Context, ino Ino) ([]Mapping, error) {
	return read(ctx, s, func(t *txn) ([]Mapping, error) {
		rec, err := t.inode(ino)
		if err != nil {
			return nil, err
		}
		return t.mappings(&rec)
	})
}

// mappings reads the mappings of an inode in order.
func (t *txn) mappings(rec *record) ([]Mapping, error) {
	switch rec.maps {
	case 0:
		return nil, nil
	case 1: // by far the most frequent case, and cheaper than a scan
		data, err := t.kv.Get(t.key(kindMapping, uint64(rec.Ino), rec.firstMap))
		if err != nil {
			return nil, corruptIfMissing(err, fmt.Sprintf("inode %d: mapping", rec.Ino))
		}
		m, err := decodeMapping(rec.firstMap, data)
		if err != nil {
			return nil, fmt.Errorf("inode %d: %w", rec.Ino, err)
		}
		return []Mapping{m}, nil
	}
	var maps []Mapping
	prefix := t.key(kindMapping, uint64(rec.Ino))
	err := t.kv.Scan(prefix, nil, func(key, value []byte) (bool, error) {
		m, err := decodeMapping(keyNumber(key, 1), value)
		if err != nil {
			return false, fmt.Errorf("inode %d: %w", rec.Ino, err)
		}
		maps = append(maps, m)
		return true, nil
	})
	return maps, err
}

// replaceMappings writes the difference between the stored mappings and maps, up to limit
// records of it, and updates the counts in rec, which the caller stores. whole reports that
// nothing is left to write.
func (t *txn) replaceMappings(rec *record, maps []Mapping, limit int) (whole bool, err error) {
	old, err := t.mappings(rec)
	if err != nil {
		return false, err
	}
	all := maps
	rec.firstMap = 0
	if len(maps) > 0 {
		rec.firstMap = maps[0].FileOff
	}
	for len(old) > 0 || len(maps) > 0 {
		if len(old) > 0 && len(maps) > 0 && old[0] == maps[0] {
			old, maps = old[1:], maps[1:]
			continue
		}
		if limit--; limit < 0 {
			if len(maps) == len(all) && len(old) > 0 {
				rec.firstMap = old[0].FileOff
			}
			return false, nil
		}
		old, maps = t.replaceMapping(rec, old, maps)
	}
	return true, nil
}

// replaceMapping writes one record: it removes the first of old, or stores the first of
// maps, possibly replacing the former. It returns the rest of both.
func (t *txn) replaceMapping(rec *record, old, maps []Mapping) (restOld, rest []Mapping) {
	if len(maps) == 0 || len(old) > 0 && old[0].FileOff < maps[0].FileOff {
		rec.maps--
		t.del(t.key(kindMapping, uint64(rec.Ino), old[0].FileOff))
		return old[1:], maps
	}
	if len(old) > 0 && old[0].FileOff == maps[0].FileOff {
		old = old[1:]
	} else {
		rec.maps++
	}
	t.putMapping(rec.Ino, &maps[0])
	return old, maps[1:]
}

func (t *txn) putMapping(ino Ino, m *Mapping) {
	t.set(t.key(kindMapping, uint64(ino), m.FileOff), encodeMapping(t.room(mappingRoom), m))
}

// mappingRoom is a size, in bytes, that is sufficient for most mapping records.
const mappingRoom = 48
