package badgerkv

import (
	"bytes"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/hmcfs/hmcfs/metadata"
)

// txn adapts one transaction of Badger to metadata.KVTxn.
type txn struct {
	*badger.Txn

	stamp uint64 // for the entries that it sets
	bytes int64  // an upper bound for what its commit writes to a log
	// last is an entry that the commit sets; nil if it is not certain to set any.
	last *badger.Entry
}

// markKey is set by commits that only delete. Scans skip it.
const markKey = "\x00hmcfs mark"

// commit commits, and returns the version. Each commit sets a key: the entry with the
// highest version survives all compactions, which drop deleted entries, so that the tables
// always show up to which version they reach.
func (t *txn) commit() (uint64, error) {
	if t.last == nil {
		if err := t.Set([]byte(markKey), nil); err != nil {
			return 0, err
		}
	}
	if err := t.Commit(); err != nil {
		return 0, translate(err)
	}
	return y.ParseTs(t.last.Key), nil // Badger has added the version to the key
}

// wrote adds the size of one entry to bytes.
func (t *txn) wrote(key, value []byte) {
	if t.bytes == 0 {
		t.bytes = entryRoom // for the entry that ends the transaction
	}
	t.bytes += int64(entryRoom + len(key) + len(value))
}

func (t *txn) Get(key []byte) ([]byte, error) {
	item, err := t.Txn.Get(key)
	if err != nil {
		return nil, translate(err)
	}
	// Get has already copied a value from the tables; this returns that copy, or a value
	// that this transaction itself has set.
	var out []byte
	err = item.Value(func(value []byte) error {
		out = value
		return nil
	})
	return out, translate(err)
}

func (t *txn) Set(key, value []byte) error {
	if len(value) >= maxValue {
		return metadata.ErrTooLarge
	}
	t.wrote(key, value)
	e := badger.NewEntry(key, value)
	e.ExpiresAt = t.stamp
	if err := t.SetEntry(e); err != nil {
		return translate(err)
	}
	t.last = e
	return nil
}

func (t *txn) Delete(key []byte) error {
	t.wrote(key, nil)
	if t.last != nil && bytes.Equal(t.last.Key, key) {
		t.last = nil
	}
	return translate(t.Txn.Delete(key))
}

func (t *txn) Scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	it := t.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	start := prefix
	if string(from) > string(prefix) {
		start = from
	}
	for it.Seek(start); it.ValidForPrefix(prefix); it.Next() {
		item := it.Item()
		if string(item.Key()) == markKey {
			continue
		}
		more := false
		err := item.Value(func(value []byte) (err error) {
			more, err = fn(item.Key(), value)
			return err
		})
		if err != nil || !more {
			return translate(err)
		}
	}
	return nil
}
