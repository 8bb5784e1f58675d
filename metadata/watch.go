package metadata

import "slices"

// watchedTxn records the keys that a transaction writes and the cache may contain.
type watchedTxn struct {
	KVTxn
	cache   *cache
	written [][]byte
	// fresh lists the inodes, in order, that this run of the transaction has created and added to the
	// cache in their final state.
	fresh []Ino
	// renewed is an inode that the transaction changes, and whose cached value it renews; 0 for
	// none. drops is that of its shard before the transaction began.
	renewed Inode
	drops   uint64
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
	if key[0] != kindInode {
		return
	}
	if at, is := slices.BinarySearch(w.fresh, keyIno(key)); is {
		w.fresh = slices.Delete(w.fresh, at, at+1) // it has changed since it entered the cache
	}
}

// stays reports whether the cached value of a key is the one written.
func (w *watchedTxn) stays(key []byte) bool {
	if key[0] != kindInode {
		return false
	}
	_, is := slices.BinarySearch(w.fresh, keyIno(key))
	return is
}

// forget drops what the transaction wrote from the cache.
func (w *watchedTxn) forget(committed bool) {
	for _, key := range w.written {
		switch {
		case !committed:
			w.cache.drop(key)
		case w.stays(key):
		case key[0] == kindInode && keyIno(key) == w.renewed.Ino:
			w.cache.ofInode(w.renewed.Ino).replace(w.renewed.Ino, w.renewed, w.drops)
		default:
			w.cache.drop(key)
		}
	}
}
