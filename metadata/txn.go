package metadata

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
)

// txn is a transaction of the KV in terms of records. Only its methods build keys and
// values.
type txn struct {
	s   *Store
	kv  KVTxn
	now Timespec // one time for all changes of the transaction
	// arena provides the memory of keys and values, so that an operation needs one
	// allocation for most of them. Slices of it stay valid until the transaction ends, even
	// if the arena is replaced.
	arena []byte
	chunk int // by how much the arena grows
	// watch records what update needs for the cache; nil in other transactions.
	watch *watchedTxn
	// used lists the transaction's changes of users' usage.
	used []usageChange
	// err is the first error of set, del and fail.
	err error
}

// The arena of a read-only transaction holds a few keys; that of a writing one holds
// everything that a simple operation stores.
const (
	viewChunk   = 64
	updateChunk = 1024
	// keptArena and keptKeys bound the memory of an update that another one uses again: bytes
	// of its arena, and keys that it has written.
	keptArena = 64 << 10
	keptKeys  = 4 << 10
)

func (s *Store) startTxn(kv KVTxn) *txn {
	return &txn{s: s, kv: kv, now: TimespecOf(s.now()), chunk: updateChunk}
}

// run runs fn, and returns the first error of a write, or that of fn.
func (t *txn) run(fn func(*txn) error) error {
	err := fn(t)
	return cmp.Or(t.err, err)
}

// fail makes run return an error, unless there is an earlier one.
func (t *txn) fail(err error) { t.err = cmp.Or(t.err, err) }

// set writes a value. Its error is kept for run, so that sequences of writes need no checks.
func (t *txn) set(key, value []byte) { t.fail(t.kv.Set(key, value)) }

// del removes a key; see set.
func (t *txn) del(key []byte) { t.fail(t.kv.Delete(key)) }

// read returns what fn reads in a snapshot.
func read[T any](ctx context.Context, s *Store, fn func(*txn) (T, error)) (out T, err error) {
	err = s.view(ctx, func(t *txn) error {
		out, err = fn(t)
		return err
	})
	return out, err
}

func (s *Store) view(ctx context.Context, fn func(*txn) error) error {
	return s.kv.View(ctx, func(kv KVTxn) error {
		t := txn{s: s, kv: kv, chunk: viewChunk}
		return t.run(fn)
	})
}

// get reads a value. Errors: absent if there is none.
func (t *txn) get(key []byte, absent error) ([]byte, error) {
	data, err := t.kv.Get(key)
	if errors.Is(err, ErrNoKey) {
		err = absent
	}
	return data, err
}

// room returns an empty slice with capacity for n bytes.
func (t *txn) room(n int) []byte {
	if cap(t.arena)-len(t.arena) < n {
		t.arena = make([]byte, 0, max(n, t.chunk))
	}
	at := len(t.arena)
	t.arena = t.arena[:at+n]
	return t.arena[at : at : at+n]
}

func (t *txn) key(kind byte, numbers ...uint64) []byte {
	return appendKey(t.room(1+8*len(numbers)), kind, numbers...)
}

func (t *txn) keyString(kind byte, s string) []byte {
	return append(append(t.room(1+len(s)), kind), s...)
}

// keysUnder collects up to limit keys with a prefix; 0 means all.
func (t *txn) keysUnder(prefix []byte, limit int) ([][]byte, error) {
	var keys [][]byte
	err := t.kv.Scan(prefix, nil, func(key, _ []byte) (bool, error) {
		keys = append(keys, append(t.room(len(key)), key...))
		return limit == 0 || len(keys) < limit, nil
	})
	return keys, err
}

// deleteUnder deletes up to limit keys with a prefix, 0 meaning all, and returns their
// number.
func (t *txn) deleteUnder(prefix []byte, limit int) (int, error) {
	keys, err := t.keysUnder(prefix, limit)
	for _, key := range keys {
		t.del(key)
	}
	return len(keys), err
}

// update runs a transaction, and then drops what it wrote from the cache, even if it
// failed: an error may occur after the commit.
func (s *Store) update(ctx context.Context, fn func(*txn) error) error {
	return s.updateBy(ctx, s.kv.Update, 0, fn)
}

// updater is a method of KV or Deferrer.
type updater func(context.Context, func(KVTxn) error) error

// soon returns how changes are made that need not survive the death of the process.
func (s *Store) soon() updater {
	if d, ok := s.kv.(Deferrer); ok {
		return d.UpdateSoon
	}
	return s.kv.Update
}

// updateBy is update by a method of the KV. It keeps one inode in the cache if the transaction
// writes its final state with renew: a directory to which many files are added.
func (s *Store) updateBy(ctx context.Context, run updater, renews Ino, fn func(*txn) error) error {
	u := s.updates.start(s.cache)
	defer s.updates.end(u)
	w, t := &u.watched, &u.txn
	if renews != 0 {
		w.drops = s.cache.ofInode(renews).dropped()
	}
	err := run(ctx, func(kv KVTxn) error {
		w.KVTxn, w.fresh, w.renewed = kv, w.fresh[:0], Inode{}
		// The arena still has the keys that an earlier run has written.
		*t = txn{s: s, kv: w, now: TimespecOf(s.now()), arena: t.arena, chunk: updateChunk, watch: w, used: t.used[:0]}
		return t.run(fn)
	})
	if err == nil && len(t.used) > 0 {
		s.usage.apply(t.used)
	}
	w.forget(err == nil)
	if fn := s.changed.Load(); fn != nil && *fn != nil {
		for _, key := range w.written {
			if key[0] == kindInode || key[0] == kindDirent {
				(*fn)(keyIno(key), key[0] == kindDirent)
			}
		}
	}
	return err
}

// updating is the memory of a running updateBy.
type updating struct {
	watched watchedTxn
	txn     txn
}

// updates keeps the memory of updates that have ended.
type updates struct{ pool sync.Pool }

// start returns memory for an update.
func (us *updates) start(c *cache) *updating {
	u, _ := us.pool.Get().(*updating)
	if u == nil {
		u = &updating{}
	}
	u.watched.cache = c
	return u
}

// end keeps the memory of an update for others, unless it is large.
func (us *updates) end(u *updating) {
	w, t := &u.watched, &u.txn
	if cap(t.arena) > keptArena || cap(w.written) > keptKeys {
		return
	}
	clear(w.written)
	*w = watchedTxn{written: w.written[:0], fresh: w.fresh[:0]}
	*t = txn{arena: t.arena[:0], used: t.used[:0]}
	us.pool.Put(u)
}

// grow is update for changes that add names or attributes: it respects the reserve.
func (s *Store) grow(ctx context.Context, fn func(*txn) error) error {
	if err := s.Room(ctx); err != nil {
		return err
	}
	return s.update(ctx, fn)
}

// renew writes the inode that updateBy keeps in the cache, for the last time.
func (t *txn) renew(rec *record) {
	t.putInode(rec)
	t.watch.renewed = rec.Inode
}

// fresh adds an inode to the cache that this transaction has just created and written for
// the last time. It returns it, not to be changed.
func (t *txn) fresh(rec *record) *Inode {
	in := t.s.cache.ofInode(rec.Ino).putFresh(rec.Ino, &rec.Inode)
	at, _ := slices.BinarySearch(t.watch.fresh, rec.Ino)
	t.watch.fresh = slices.Insert(t.watch.fresh, at, rec.Ino) // numbers ascend, mostly
	return in
}
