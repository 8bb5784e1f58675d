package badgerkv

import (
	"sync/atomic"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/tidwall/btree"
)

// base is a read transaction of Badger that many snapshots share. Badger allows concurrent reads
// of one that writes nothing.
type base struct {
	*badger.Txn
	users  atomic.Int64
	filter *filter // nil for none
}

// newBase returns what Badger has now, for one user.
func (kv *KV) newBase() *base {
	b := &base{Txn: kv.db.NewTransaction(false), filter: kv.filter.Load()}
	b.users.Store(1)
	return b
}

func (b *base) release() {
	if b.users.Add(-1) == 0 {
		b.Discard()
	}
}

// snapshot is the state of the store as of a version: what Badger had, and the layers above it.
type snapshot struct {
	kv      *KV
	version uint64
	base    *base
	layers  [2]*layer // newest first; nil for none
	from    *layer    // the layer that was active
}

// snapshot returns the present state. The caller releases its base.
func (kv *KV) snapshot() snapshot {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	s := snapshot{kv: kv, version: kv.version, base: kv.base, from: kv.active}
	s.base.users.Add(1)
	if kv.active.last > 0 {
		s.layers[0] = kv.active
	}
	s.layers[1] = kv.frozen
	return s
}

// changed returns the last change of a key, given with its hash, that Badger did not have; nil if
// there is none.
func (s *snapshot) changed(key []byte, hash uint64) *change {
	if s.layers[0] == nil && s.layers[1] == nil {
		return nil
	}
	s.kv.mu.RLock()
	defer s.kv.mu.RUnlock()
	for _, l := range s.layers {
		if l == nil {
			continue
		}
		if c := l.at(key, hash, s.version); c != nil {
			return c
		}
	}
	return nil
}

// changedUnder adds to out what layer.under says of the snapshot's layers.
func (s *snapshot) changedUnder(prefix, from string, out *btree.Map[string, *change]) {
	s.sort()
	s.kv.mu.RLock()
	defer s.kv.mu.RUnlock()
	for _, l := range s.layers {
		if l != nil {
			l.under(prefix, from, s.version, out)
		}
	}
}

// sort makes the snapshot's layers ready for scans.
func (s *snapshot) sort() {
	s.kv.mu.RLock()
	ready := true
	for _, l := range s.layers {
		ready = ready && (l == nil || l.sorted != nil)
	}
	s.kv.mu.RUnlock()
	if ready {
		return
	}
	s.kv.mu.Lock()
	defer s.kv.mu.Unlock()
	for _, l := range s.layers {
		if l != nil {
			l.sort()
		}
	}
}
