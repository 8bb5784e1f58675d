package metadata

import "slices"

// watchedTxn records the keys that a transaction writes and the cache may contain.
type watchedTxn struct {
	KVTxn
	cache   *cache
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
	if !w.cache.keeps(key) {
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
