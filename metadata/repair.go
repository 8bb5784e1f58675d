package metadata

import (
	"context"
	"errors"
	"time"
)

// skipInos is the number of inode numbers left unused after the highest known one: lost
// records may have used some of them.
const skipInos = 1 << 32

// dropBatch is the number of records that one transaction of dropEntries deletes.
const dropBatch = 4096

// Repair prepares restored records for Open, and returns descriptions of what is lost for
// good. Inconsistencies between records are left to Check and Repair. Without the
// superblock, names can't be found by their hashes: then all entries are deleted, and
// Repair restores every inode's entry from its Parent and Name.
func Repair(ctx context.Context, kv KV) (gone []string, err error) {
	left, err := lookOver(ctx, kv)
	if err != nil {
		return nil, err
	}
	s := &Store{kv: kv, now: time.Now}
	err = kv.Update(ctx, func(tx KVTxn) error {
		gone = nil
		return s.repair(tx, left, &gone)
	})
	if err == nil && len(gone) > 0 && gone[0] == goneSuper {
		err = dropEntries(ctx, kv)
	}
	return gone, err
}

const (
	goneSuper = "the superblock: all names are restored from their inodes"
	goneRoot  = "the root directory's record"
)

func (s *Store) repair(tx KVTxn, left remains, gone *[]string) error {
	data, err := tx.Get([]byte{kindSuper})
	if err == nil {
		s.super, err = decodeSuperblock(data)
	}
	switch {
	case errors.Is(err, ErrNoKey), errors.Is(err, ErrCorrupt):
		*gone = append(*gone, goneSuper)
		s.super = drawSuperblock(s.now())
		if left.gen != 0 {
			s.super.gen = left.gen // host memory is only used with the generation recorded with it
		}
		if err = tx.Set([]byte{kindSuper}, s.super.encode()); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	return s.startTxn(tx).run(func(t *txn) error {
		_, err := t.inode(RootIno)
		if errors.Is(err, ErrNotExist) || errors.Is(err, ErrCorrupt) {
			*gone = append(*gone, goneRoot)
			root := t.rootDir(s.super.gen)
			t.putInode(&root)
			err = nil
		}
		t.set([]byte{kindAlloc}, encodeNumber(nil, uint64(max(left.highest, FirstIno))+skipInos))
		return err
	})
}

// remains are facts about a store, derived from records, for when its first ones are lost.
type remains struct {
	highest Ino        // the highest inode number in any record
	gen     Generation // the generation of the inodes; 0 if no inode record is readable
}

// lookOver reads all records and derives the facts.
func lookOver(ctx context.Context, kv KV) (left remains, err error) {
	err = kv.View(ctx, func(tx KVTxn) error {
		left = remains{}
		return tx.Scan(nil, nil, func(key, value []byte) (bool, error) {
			left.highest = max(left.highest, inoOf(key, value))
			if key[0] == kindInode && left.gen == 0 {
				if rec, unreadable := decodeRecord(keyIno(key), value); unreadable == nil {
					left.gen = rec.Gen
				}
			}
			return true, nil
		})
	})
	return left, err
}

// inoOf returns the inode number in a record; 0 if it has none or can't be read.
func inoOf(key, value []byte) Ino {
	switch key[0] {
	case kindInode, kindLink, kindXattr, kindMapping, kindPurge, kindBinding, kindPart:
		return keyIno(key)
	case kindDirent:
		if d, err := decodeDirent(value); err == nil {
			return d.ino
		}
	case kindAlloc:
		if n, err := decodeNumber("inode counter", value); err == nil {
			return Ino(n)
		}
	}
	return 0
}

// dropEntries deletes all directory entries, and the records of further links.
func dropEntries(ctx context.Context, kv KV) error {
	for _, kind := range []byte{kindDirent, kindLink} {
		var keys [][]byte
		for from, more := []byte(nil), true; more; {
			err := kv.Update(ctx, func(tx KVTxn) error {
				keys = nil
				err := tx.Scan([]byte{kind}, from, func(key, _ []byte) (bool, error) {
					keys = append(keys, append([]byte(nil), key...))
					return len(keys) < dropBatch, nil
				})
				for _, key := range keys {
					err = errors.Join(err, tx.Delete(key))
				}
				return err
			})
			if err != nil {
				return err
			}
			if more = len(keys) > 0; more {
				from = keys[len(keys)-1] // skips the deleted keys in the next scan
			}
		}
	}
	return nil
}
