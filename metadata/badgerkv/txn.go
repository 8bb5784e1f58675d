package badgerkv

import (
	"bytes"
	"fmt"
	"hash/maphash"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/tidwall/btree"

	"github.com/hmcfs/hmcfs/metadata"
)

// txn is one transaction: a metadata.KVTxn on a snapshot.
type txn struct {
	snapshot
	update bool
	reads  []uint64 // hashes of the keys that an update has read
	commit
	own hashes[int] // the last write by the hash of its key, as an index of writes, and one
}

// markKey is set by commits that only delete. Scans skip it.
const markKey = "\x00hmcfs mark"

const (
	// entrySize is an upper bound for the overhead of an entry in Badger's count of a
	// transaction's size.
	entrySize = 24
	// maxKey is the length of the longest key that Badger accepts, in bytes.
	maxKey = 65000
)

func (t *txn) Get(key []byte) ([]byte, error) {
	hash := t.kv.hash(key)
	if w := t.wrote(key, hash); w != nil {
		return w.read()
	}
	t.hasRead(hash)
	if c := t.changed(key, hash); c != nil {
		return c.read()
	}
	if t.base.filter.lacks(hash) {
		return nil, metadata.ErrNoKey
	}
	item, err := t.base.Get(key)
	if err != nil {
		return nil, translate(err)
	}
	// Get has already copied a value from the tables; this returns that copy.
	var out []byte
	err = item.Value(func(value []byte) error {
		out = value
		return nil
	})
	return out, translate(err)
}

func (kv *KV) hash(key []byte) uint64 { return maphash.Bytes(kv.seed, key) }

// wrote returns the transaction's own last change of a key, given with its hash; nil for none.
func (t *txn) wrote(key []byte, hash uint64) *change {
	for at := t.own.get(hash) - 1; at >= 0; at-- { // the first one is of this key, unless two keys have the same hash
		if w := &t.writes[at]; w.hash == hash && bytes.Equal(w.key, key) {
			return w
		}
	}
	return nil
}

// hasRead notes the hash of a key that is read.
func (t *txn) hasRead(hash uint64) {
	if t.update {
		t.reads = append(t.reads, hash)
	}
}

// read returns the value that was written.
func (c *change) read() ([]byte, error) {
	if c.deleted {
		return nil, metadata.ErrNoKey
	}
	return c.value, nil
}

func (t *txn) Set(key, value []byte) error {
	if len(value) >= maxValue {
		return metadata.ErrTooLarge
	}
	return t.write(change{key: key, value: value})
}

func (t *txn) Delete(key []byte) error {
	return t.write(change{key: key, deleted: true})
}

// write adds a change to the transaction.
func (t *txn) write(w change) error {
	switch {
	case !t.update:
		return metadata.ErrReadOnly
	case len(w.key) == 0 || len(w.key) > maxKey:
		return fmt.Errorf("a key of %d bytes: %w", len(w.key), metadata.ErrTooLarge)
	}
	if len(t.writes) == 0 {
		t.bytes = 2 * entryRoom // for the entry that ends the transaction, and for markKey
		t.size = 2*entrySize + int64(len(markKey))
	}
	n := int64(len(w.key) + len(w.value))
	t.bytes += entryRoom + n
	t.size += entrySize + n
	if t.size >= t.kv.db.MaxBatchSize() || int64(len(t.writes))+3 >= t.kv.db.MaxBatchCount() {
		return metadata.ErrTooLarge
	}
	w.hash = t.kv.hash(w.key)
	t.writes = append(t.writes, w)
	*t.own.at(w.hash) = len(t.writes)
	return nil
}

func (t *txn) Scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	start := prefix
	if string(from) > string(prefix) {
		start = from
	}
	it := t.base.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	m := &merge{above: t.above(prefix, start), below: it, prefix: prefix}
	it.Seek(start)
	for key, value, err := m.next(); key != nil || err != nil; key, value, err = m.next() {
		if err != nil {
			return translate(err)
		}
		if t.update {
			t.hasRead(t.kv.hash(key))
		}
		if more, err := fn(key, value); err != nil || !more {
			return err
		}
	}
	return nil
}

// above returns the changes that Badger does not have, of the keys that begin with prefix and are
// not below from: those of the transaction, and those of the layers.
func (t *txn) above(prefix, from []byte) []*change {
	var found btree.Map[string, *change]
	for i := range t.writes {
		if w := &t.writes[i]; bytes.HasPrefix(w.key, prefix) && bytes.Compare(w.key, from) >= 0 {
			found.Set(string(w.key), w)
		}
	}
	t.changedUnder(string(prefix), string(from), &found)
	return found.Values()
}

// merge iterates over the keys of Badger and the changes above them, in ascending order.
type merge struct {
	above  []*change
	below  *badger.Iterator
	prefix []byte
	// stands is set while the iterator is at the key that next has returned.
	stands bool
}

// next returns the next key and its value, which are valid until the next call; nil at the end.
func (m *merge) next() (key, value []byte, err error) {
	if m.stands {
		m.below.Next()
		m.stands = false
	}
	for {
		var item *badger.Item
		if m.below.ValidForPrefix(m.prefix) {
			item = m.below.Item()
		}
		order := 1 // of Badger's key, compared with the next change
		switch {
		case item == nil && len(m.above) == 0:
			return nil, nil, nil
		case item == nil:
		case len(m.above) == 0:
			order = -1
		default:
			order = bytes.Compare(item.Key(), m.above[0].key)
		}
		switch {
		case order < 0 && string(item.Key()) != markKey:
			m.stands = true
			err = item.Value(func(v []byte) error {
				value = v
				return nil
			})
			return item.Key(), value, err
		case order <= 0:
			m.below.Next()
		}
		if order < 0 {
			continue
		}
		w := m.above[0]
		m.above = m.above[1:]
		if !w.deleted {
			return w.key, w.value, nil
		}
	}
}
