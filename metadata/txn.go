package metadata

import (
	"context"
	"errors"
	"fmt"
)

// txn is a transaction of the KV in terms of records. Only its methods build keys and
// values.
type txn struct {
	s   *Store
	kv  KVTxn
	now Timespec // one time for all changes of the transaction
	// arena provides the memory of keys and values, so that an operation needs one
	// allocation for most of them. Slices of it stay valid until the transaction ends, even
	// if the arena is replaced.
	arena []byte
	chunk int // by how much the arena grows
	// watch records what update needs for the cache; nil in other transactions.
	watch *watchedTxn
	// used lists the transaction's changes of users' usage.
	used []usageChange
}

// The arena of a read-only transaction holds a few keys; that of a writing one holds
// everything that a simple operation stores.
const (
	viewChunk   = 64
	updateChunk = 1024
)

func (s *Store) startTxn(kv KVTxn) *txn {
	return &txn{s: s, kv: kv, now: TimespecOf(s.now()), chunk: updateChunk}
}

func (s *Store) view(ctx context.Context, fn func(*txn) error) error {
	return s.kv.View(ctx, func(kv KVTxn) error {
		return fn(&txn{s: s, kv: kv, chunk: viewChunk})
	})
}

// room returns an empty slice with capacity for n bytes.
func (t *txn) room(n int) []byte {
	if cap(t.arena)-len(t.arena) < n {
		t.arena = make([]byte, 0, max(n, t.chunk))
	}
	at := len(t.arena)
	t.arena = t.arena[:at+n]
	return t.arena[at : at : at+n]
}

func (t *txn) key1(kind byte, a uint64) []byte {
	return appendKey1(t.room(1+8), kind, a)
}

func (t *txn) key2(kind byte, a, b uint64) []byte {
	return appendKey2(t.room(1+16), kind, a, b)
}

func (t *txn) key3(kind byte, a, b, c uint64) []byte {
	return appendKey3(t.room(1+24), kind, a, b, c)
}

func (t *txn) keyString(kind byte, s string) []byte {
	return append(append(t.room(1+len(s)), kind), s...)
}

// inode reads an inode. Errors: ErrNotExist.
func (t *txn) inode(ino Ino) (record, error) {
	data, err := t.kv.Get(t.key1(kindInode, uint64(ino)))
	if errors.Is(err, ErrNoKey) {
		return record{}, ErrNotExist
	}
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

func (t *txn) putInode(rec *record) error {
	if err := t.account(rec); err != nil {
		return err
	}
	value := rec.encode(t.room(inodeRoom))
	return t.kv.Set(t.key1(kindInode, uint64(rec.Ino)), value)
}

// touchDir updates a directory whose entries changed: entries is the change of their
// number, and subdirs that of the directories among them.
func (t *txn) touchDir(dir *record, entries, subdirs int) {
	dir.Size = uint64(int64(dir.Size) + int64(entries))
	dir.Nlink = uint32(int64(dir.Nlink) + int64(subdirs))
	dir.Mtime = t.now
	dir.Ctime = t.now
}

// keysUnder collects up to limit keys with a prefix; 0 means all.
func (t *txn) keysUnder(prefix []byte, limit int) ([][]byte, error) {
	var keys [][]byte
	err := t.kv.Scan(prefix, nil, func(key, _ []byte) (bool, error) {
		keys = append(keys, append(t.room(len(key)), key...))
		return limit == 0 || len(keys) < limit, nil
	})
	return keys, err
}

// deleteUnder deletes up to limit keys with a prefix, 0 meaning all, and returns their
// number.
func (t *txn) deleteUnder(prefix []byte, limit int) (int, error) {
	keys, err := t.keysUnder(prefix, limit)
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		if err := t.kv.Delete(key); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}
