package badgerkv

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

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
	own map[string]int // the last write of a key, as an index of writes
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
	if at, ok := t.own[string(key)]; ok {
		return t.writes[at].read()
	}
	t.hasRead(key)
	if w := t.changed(key); w != nil {
		return w.read()
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

// hasRead notes a key that is read.
func (t *txn) hasRead(key []byte) {
	if t.update {
		t.reads = append(t.reads, maphash.Bytes(t.kv.seed, key))
	}
}

// read returns the value that was written.
func (w *write) read() ([]byte, error) {
	if w.deleted {
		return nil, metadata.ErrNoKey
	}
	return w.value, nil
}

func (t *txn) Set(key, value []byte) error {
	if len(value) >= maxValue {
		return metadata.ErrTooLarge
	}
	return t.write(write{key: string(key), value: slices.Clone(value)})
}

func (t *txn) Delete(key []byte) error {
	return t.write(write{key: string(key), deleted: true})
}

// write adds a change to the transaction.
func (t *txn) write(w write) error {
	switch {
	case !t.update:
		return metadata.ErrReadOnly
	case w.key == "" || len(w.key) > maxKey:
		return fmt.Errorf("a key of %d bytes: %w", len(w.key), metadata.ErrTooLarge)
	}
	if t.own == nil {
		t.own = make(map[string]int, 8)
		t.bytes = 2 * entryRoom // for the entry that ends the transaction, and for markKey
		t.size = 2*entrySize + int64(len(markKey))
	}
	n := int64(len(w.key) + len(w.value))
	t.bytes += entryRoom + n
	t.size += entrySize + n
	if t.size >= t.kv.db.MaxBatchSize() || int64(len(t.writes))+3 >= t.kv.db.MaxBatchCount() {
		return metadata.ErrTooLarge
	}
	t.own[w.key] = len(t.writes)
	t.writes = append(t.writes, w)
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
		t.hasRead(key)
		if more, err := fn(key, value); err != nil || !more {
			return err
		}
	}
	return nil
}

// above returns the changes that Badger does not have, of the keys that begin with prefix and are
// not below from: those of the transaction, and those of the layers.
func (t *txn) above(prefix, from []byte) []*write {
	var found btree.Map[string, *write]
	for key, at := range t.own {
		if strings.HasPrefix(key, string(prefix)) && key >= string(from) {
			found.Set(key, &t.writes[at])
		}
	}
	t.changedUnder(string(prefix), string(from), &found)
	return found.Values()
}

// merge iterates over the keys of Badger and the changes above them, in ascending order.
type merge struct {
	above  []*write
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
			order = bytes.Compare(item.Key(), []byte(m.above[0].key))
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
			return []byte(w.key), w.value, nil
		}
	}
}
