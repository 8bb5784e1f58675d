package metadata

import (
	"context"
	"slices"
)

// watchedTxn records the keys that a transaction writes and the cache may contain.
type watchedTxn struct {
	KVTxn
	written [][]byte
	// fresh lists the inodes that this run of the transaction has created and added to the
	// cache in their final state.
	fresh []Ino
}

// Set writes a value and records the key.
func (w *watchedTxn) Set(key, value []byte) error {
	w.note(key)
	return w.KVTxn.Set(key, value)
}

// Delete removes a key and records it.
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
		// The inode has changed since it entered the cache.
		w.fresh = slices.DeleteFunc(w.fresh, func(ino Ino) bool { return ino == keyIno(key) })
	}
}

// stays reports whether the cached value of a key is the one written.
func (w *watchedTxn) stays(key []byte) bool {
	return key[0] == kindInode && slices.Contains(w.fresh, keyIno(key))
}

// update runs a transaction, and then drops what it wrote from the cache, even if it
// failed: an error may occur after the commit.
func (s *Store) update(ctx context.Context, fn func(*txn) error) error {
	w := watchedTxn{written: make([][]byte, 0, 4)}
	var used []usageChange
	err := s.kv.Update(ctx, func(kv KVTxn) (err error) {
		w.KVTxn, w.fresh = kv, w.fresh[:0]
		t := s.startTxn(&w)
		t.watch = &w
		err = fn(t)
		used = t.used
		return err
	})
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

// grow is update for changes that add names or attributes: it respects the reserve.
func (s *Store) grow(ctx context.Context, fn func(*txn) error) error {
	if err := s.Room(ctx); err != nil {
		return err
	}
	return s.update(ctx, fn)
}

// OnWrite has fn called for every inode, and every directory whose names changed, that a
// transaction has written or may have written: possibly more than once, and also for a
// failed transaction. It is called before the operation returns and with locks of the store
// held, so it must not block or call the store. nil removes fn; a call may still be running
// then.
func (s *Store) OnWrite(fn func(ino Ino, names bool)) {
	if fn == nil {
		s.changed.Store(nil)
		return
	}
	s.changed.Store(&fn)
}

// fresh adds an inode to the cache that this transaction has just created and written for
// the last time.
func (t *txn) fresh(rec *record) {
	t.s.cache.putFresh(rec.Inode)
	t.watch.fresh = append(t.watch.fresh, rec.Ino)
}
