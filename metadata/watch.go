package metadata

import (
	"context"
	"slices"
)

// watchedTxn remembers the keys that a transaction writes and the cache may
// hold.
type watchedTxn struct {
	KVTxn
	written [][]byte
	// fresh are the inodes that this run of the transaction has made and
	// brought into the cache, as they will be.
	fresh []Ino
}

// Set writes a value and remembers the key.
func (w *watchedTxn) Set(key, value []byte) error {
	w.note(key)
	return w.KVTxn.Set(key, value)
}

// Delete removes a key and remembers it.
func (w *watchedTxn) Delete(key []byte) error {
	w.note(key)
	return w.KVTxn.Delete(key)
}

func (w *watchedTxn) note(key []byte) {
	if key[0] != kindInode && key[0] != kindDirent {
		return
	}
	w.written = append(w.written, key)
	if key[0] == kindInode && len(w.fresh) > 0 {
		// It is not as it came into the cache any more.
		w.fresh = slices.DeleteFunc(w.fresh, func(ino Ino) bool { return ino == keyIno(key) })
	}
}

// stays says whether what the cache has under a key is what was written.
func (w *watchedTxn) stays(key []byte) bool {
	return key[0] == kindInode && slices.Contains(w.fresh, keyIno(key))
}

// update runs a transaction, and then drops what it wrote from the cache, also
// when it failed: a failure may come after the commit.
func (s *Store) update(ctx context.Context, fn func(*txn) error) error {
	w := watchedTxn{written: make([][]byte, 0, 4)}
	var used []usageChange
	err := s.kv.Update(ctx, func(kv KVTxn) (err error) {
		w.KVTxn, w.fresh = kv, w.fresh[:0]
		t := s.begunTxn(&w)
		t.watch = &w
		err = fn(t)
		used = t.used
		return err
	})
	if err == nil {
		s.committed(ctx)
	}
	if err == nil && len(used) > 0 {
		s.usage.apply(used)
	}
	for _, key := range w.written {
		if err != nil || !w.stays(key) {
			s.cache.drop(key)
		}
	}
	if fn := s.changed.Load(); fn != nil {
		for _, key := range w.written {
			(*fn)(keyIno(key), key[0] == kindDirent)
		}
	}
	return err
}

// grow is update for what adds names or attributes: it leaves the reserve free.
func (s *Store) grow(ctx context.Context, fn func(*txn) error) error {
	if err := s.Room(ctx); err != nil {
		return err
	}
	return s.update(ctx, fn)
}

// OnWrite has fn called for every inode, and every name of a directory, that a
// transaction has written, or may have: some more than once, and also those of
// one that failed. It is called before the operation returns and with locks of
// the store's held, so it must not wait, and calls nothing of the store's. nil
// ends it; a call may be under way then.
func (s *Store) OnWrite(fn func(ino Ino, names bool)) {
	if fn == nil {
		s.changed.Store(nil)
		return
	}
	s.changed.Store(&fn)
}

// fresh brings an inode into the cache that this transaction has just made,
// and written last.
func (t *txn) fresh(rec *record) {
	t.s.cache.putFresh(rec.Inode)
	t.watch.fresh = append(t.watch.fresh, rec.Ino)
}
