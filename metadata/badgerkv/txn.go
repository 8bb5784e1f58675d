package badgerkv

import (
	badger "github.com/dgraph-io/badger/v4"

	"github.com/hmcfs/hmcfs/metadata"
)

// txn is one transaction of Badger as the seam has it.
type txn badger.Txn

func (t *txn) badger() *badger.Txn { return (*badger.Txn)(t) }

func (t *txn) Get(key []byte) ([]byte, error) {
	item, err := t.badger().Get(key)
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
	return translate(t.badger().Set(key, value))
}

func (t *txn) Delete(key []byte) error { return translate(t.badger().Delete(key)) }

func (t *txn) Scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	it := t.badger().NewIterator(badger.IteratorOptions{Prefix: prefix})
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
