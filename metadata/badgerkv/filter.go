package badgerkv

import (
	"math/bits"
	"sync/atomic"

	badger "github.com/dgraph-io/badger/v4"
)

const (
	// leastWords is the number of words of the smallest filter, which has 1 MiB.
	leastWords = 1 << 17
	// keysPerWord is the number of keys for each word of a filter beyond which it is built again:
	// some 2 % of the keys that Badger does not have are looked up all the same then.
	keysPerWord = 6
)

// filter finds that Badger does not have a key, without a look into its tables, which takes some
// microseconds. It has seen the hashes of all keys that Badger has, and of others that were
// removed since it was built: it is built again when those become many. It is a Bloom filter of which
// each key has four bits in one word.
type filter struct {
	words []atomic.Uint64 // their number is a power of two
	keys  atomic.Int64    // roughly how many keys it has seen
}

// newFilter returns a filter with room for twice the given number of keys.
func newFilter(keys int) *filter {
	n := max(leastWords, 2*keys/keysPerWord)
	return &filter{words: make([]atomic.Uint64, 1<<bits.Len(uint(n-1)))}
}

// at returns the word of a hash, and its bits.
func (f *filter) at(hash uint64) (word *atomic.Uint64, mask uint64) {
	mask = 1<<(hash>>40&63) | 1<<(hash>>46&63) | 1<<(hash>>52&63) | 1<<(hash>>58)
	return &f.words[hash&uint64(len(f.words)-1)], mask
}

func (f *filter) add(hash uint64) {
	if word, mask := f.at(hash); word.Or(mask)&mask != mask {
		f.keys.Add(1)
	}
}

// lacks reports whether the filter has not seen a hash. That of no filter at all is unknown.
func (f *filter) lacks(hash uint64) bool {
	if f == nil {
		return false
	}
	word, mask := f.at(hash)
	return word.Load()&mask != mask
}

// full reports whether a filter should be built again.
func (f *filter) full() bool {
	return f != nil && f.keys.Load() > int64(len(f.words))*keysPerWord
}

// willHave adds the key of a change to the filters, before Badger gets it.
//
// +checklocks:kv.flushing
func (kv *KV) willHave(w *change) {
	if w.deleted {
		return
	}
	if f := kv.filter.Load(); f != nil {
		f.add(w.hash)
	}
	if kv.building != nil {
		kv.building.add(w.hash)
	}
}

// buildFilter makes a filter, in the background, of the keys that Badger has now and those that it
// gets meanwhile. Later snapshots use it; earlier ones may have keys that it lacks.
//
// +checklocks:kv.flushing
func (kv *KV) buildFilter() {
	if kv.closed.Load() {
		return
	}
	keys := 0
	for _, t := range kv.db.Tables() {
		keys += int(t.KeyCount)
	}
	f, b := newFilter(keys), kv.newBase()
	kv.building = f
	kv.builds.Go(func() {
		defer b.release()
		whole := kv.addAll(f, b)
		kv.flushing.Lock()
		defer kv.flushing.Unlock()
		if kv.building = nil; whole {
			kv.filter.Store(f)
		}
	})
}

// addAll adds all keys of a snapshot of Badger, and reports whether it did so before Close.
func (kv *KV) addAll(f *filter, b *base) bool {
	it := b.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		f.add(kv.hash(it.Item().Key()))
		if kv.closed.Load() {
			return false
		}
	}
	return true
}
