package badgerkv

import (
	"bytes"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/hmcfs/hmcfs/metadata"
)

// txn is one transaction of Badger as the seam has it.
type txn struct {
	*badger.Txn

	stamp uint64 // of the entries that it sets
	bytes int64  // at least what its commit writes to a log
	// last is an entry that the commit sets, nil when it may set none.
	last *badger.Entry
}

// markKey is set by commits that only delete, and hidden from scans.
const markKey = "\x00hmcfs mark"

// commit commits, and returns the version. Each commit sets a key: that of the
// highest version outlasts all compactions, which drop what was deleted, so that the
// tables always tell up to which version they reach.
func (t *txn) commit() (uint64, error) {
	if t.last == nil {
		if err := t.Set([]byte(markKey), nil); err != nil {
			return 0, err
		}
	}
	if err := t.Commit(); err != nil {
		return 0, translate(err)
	}
	return y.ParseTs(t.last.Key), nil // Badger has put it there
}

// wrote counts one entry.
func (t *txn) wrote(key, value []byte) {
	if t.bytes == 0 {
		t.bytes = entryRoom // the mark of the transaction's end
	}
	t.bytes += int64(entryRoom + len(key) + len(value))
}

func (t *txn) Get(key []byte) ([]byte, error) {
	item, err := t.Txn.Get(key)
	if err != nil {
		return nil, translate(err)
	}
	// A value that stands in the tables was copied by Get; this hands out
	// that copy, or a value that this transaction itself has set.
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
