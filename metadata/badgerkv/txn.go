package badgerkv

import (
	badger "github.com/dgraph-io/badger/v4"

	"github.com/hmcfs/hmcfs/metadata"
)

// txn is one transaction of Badger as the seam has it.
type txn struct {
	*badger.Txn

	bytes int64 // at least what its commit writes to a log
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
	return translate(t.Txn.Set(key, value))
}

func (t *txn) Delete(key []byte) error {
	t.wrote(key, nil)
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
