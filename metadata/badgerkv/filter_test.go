package badgerkv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	badger "github.com/dgraph-io/badger/v4"

	"github.com/hmcfs/hmcfs/metadata"
)

// TestFilter adds half of many hashes: none of them is lacking, and nearly all others are.
func TestFilter(t *testing.T) {
	t.Parallel()
	const words = 1 << 12
	const keys = keysPerWord * words
	f, r := &filter{words: make([]atomic.Uint64, words)}, rand.New(rand.NewPCG(1, 2))
	hashes := make([]uint64, 2*keys)
	for i := range hashes {
		if hashes[i] = r.Uint64(); i < keys {
			f.add(hashes[i])
			f.add(hashes[i])
		}
	}
	wrong := 0
	for i, h := range hashes {
		switch lacks := f.lacks(h); {
		case i < keys && lacks:
			t.Fatalf("the filter lacks hash %d, which was added", i)
		case i >= keys && !lacks:
			wrong++
		}
	}
	if wrong == 0 || wrong > keys/20 {
		t.Errorf("%d of %d other hashes are not lacking", wrong, keys)
	}
	if n := f.keys.Load(); n > keys || n < keys*9/10 {
		t.Errorf("%d hashes are counted as %d", keys, n)
	}
	var none *filter
	if none.lacks(7) || none.full() || !newFilter(0).lacks(7) || f.full() {
		t.Error("wrong answers of filters that are empty or do not exist")
	}
	for i := 0; !f.full(); i++ {
		if f.add(r.Uint64()); i > keys {
			t.Fatal("the filter does not become full")
		}
	}
}

// openKV opens a store of a test, which closes it.
func openKV(t *testing.T) *KV {
	t.Helper()
	kv, err := Open(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kv.Close(); err != nil {
			t.Error(err)
		}
	})
	return kv
}

// versions returns how many entries Badger has of a key, deletions included.
func (kv *KV) versions(key string) (n int) {
	tx := kv.db.NewTransaction(false)
	defer tx.Discard()
	it := tx.NewIterator(badger.IteratorOptions{AllVersions: true, Prefix: []byte(key)})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		n++
	}
	return n
}

// TestRemovedUnwritten removes keys before they are written: Badger gets neither, unless it may have
// the key.
func TestRemovedUnwritten(t *testing.T) {
	t.Parallel()
	kv := openKV(t)
	kv.builds.Wait()
	change := func(soon bool, value, key string) {
		t.Helper()
		update := kv.Update
		if soon {
			update = kv.UpdateSoon
		}
		err := update(t.Context(), func(tx metadata.KVTxn) error {
			if value == "" {
				return tx.Delete([]byte(key))
			}
			return tx.Set([]byte(key), []byte(value))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(false, "1", "had")
	change(true, "1", "new")
	change(true, "1", "again")
	change(true, "", "new")
	change(true, "", "again")
	change(true, "2", "again")
	change(true, "", "had")
	change(false, "1", "last")
	for key, want := range map[string]int{"had": 2, "new": 0, "again": 1, "last": 1} {
		if n := kv.versions(key); n != want {
			t.Errorf("Badger has %d entries of %q, want %d", n, key, want)
		}
	}
	err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
		for key, want := range map[string]string{"had": "", "new": "", "again": "2", "last": "1"} {
			value, err := tx.Get([]byte(key))
			if (err != nil) != (want == "") || string(value) != want {
				t.Errorf("%q is %q, %v", key, value, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFilterIsBuiltAgain builds filters while keys come and go: a key that exists is always found,
// also by a transaction that began before it was removed.
func TestFilterIsBuiltAgain(t *testing.T) {
	t.Parallel()
	kv := openKV(t)
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			r, has := rand.New(rand.NewPCG(uint64(client), 0)), map[string]string{}
			for i := range 300 {
				kv.changeOne(t, r, has, fmt.Sprintf("%d-%d", client, r.IntN(60)), i)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		clients.Wait()
	}()
	built := 0
	for over := false; !over; {
		kv.flushing.Lock()
		if kv.building == nil {
			kv.buildFilter()
			built++
		}
		kv.flushing.Unlock()
		kv.builds.Wait()
		select {
		case <-done:
			over = true
		default:
		}
	}
	if built < 3 {
		t.Errorf("only %d filters were built", built)
	}
}

// changeOne sets or removes a key of one client, and compares all that it has with a snapshot that is
// older than the change.
func (kv *KV) changeOne(t *testing.T, r *rand.Rand, has map[string]string, key string, i int) {
	update, value := kv.Update, fmt.Sprint(i)
	if r.IntN(4) > 0 {
		update = kv.UpdateSoon
	}
	remove := r.IntN(2) == 0
	err := kv.View(t.Context(), func(before metadata.KVTxn) error {
		err := update(t.Context(), func(tx metadata.KVTxn) error {
			if remove {
				return tx.Delete([]byte(key))
			}
			return tx.Set([]byte(key), []byte(value))
		})
		for k, want := range has {
			if got, failed := before.Get([]byte(k)); failed != nil || string(got) != want {
				t.Errorf("%s is %q, %v, and was set to %q", k, got, failed, want)
			}
		}
		if _, was := has[key]; !was {
			if got, failed := before.Get([]byte(key)); !errors.Is(failed, metadata.ErrNoKey) {
				t.Errorf("%s is %q, %v, and was not set", key, got, failed)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if has[key] = value; remove {
		delete(has, key)
	}
}
