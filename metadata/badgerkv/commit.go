package badgerkv

import (
	"context"
	"errors"
	"math"
	"time"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// flushAfter is the time for which changes of UpdateSoon are collected.
	flushAfter = 20 * time.Millisecond
	// flushBytes is the size of a layer, as admitted, at which a caller of UpdateSoon writes it:
	// a share of what may be admitted at one time, so that others need not wait for room.
	flushBytes = maxUnderWay / 4
)

// errConflict reports that a key which a transaction has read was changed since.
var errConflict = errors.New("badgerkv: conflict")

// run runs transactions until one has no conflict, and returns the version of its commit; 0 if
// it has changed nothing. soon is set if the commit will be written later.
func (kv *KV) run(ctx context.Context, fn func(metadata.KVTxn) error, soon bool) (version uint64, err error) {
	for {
		version, err = kv.try(ctx, fn, soon)
		if !errors.Is(err, errConflict) {
			return version, err
		}
	}
}

func (kv *KV) try(ctx context.Context, fn func(metadata.KVTxn) error, soon bool) (version uint64, err error) {
	if err = kv.begin(ctx); err != nil {
		return 0, err
	}
	t := &txn{snapshot: kv.snapshot(), update: true}
	defer t.base.release()
	if err = fn(t); err != nil {
		return 0, err
	}
	if err = ctx.Err(); err != nil || len(t.writes) == 0 {
		return 0, err
	}
	if err = kv.space.admit(ctx, t.bytes, soon); err != nil {
		return 0, err
	}
	if version, err = kv.order(t); err != nil {
		kv.space.done(t.bytes)
	}
	return version, err
}

// order makes the changes of an admitted transaction visible, behind all earlier ones.
//
// Errors: errConflict; why an earlier change could not be written.
func (kv *KV) order(t *txn) (version uint64, err error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	switch {
	case kv.failed != nil:
		return 0, kv.failed
	case t.from.conflicts(t.version, t.reads):
		return 0, errConflict
	}
	kv.version++
	kv.active.add(kv.seed, kv.version, t.commit)
	return kv.version, nil
}

// flushSoon has a change written that need not be written yet.
func (kv *KV) flushSoon(version uint64) error {
	kv.mu.Lock()
	full := kv.active.bytes >= flushBytes
	if !full && kv.timer == nil {
		kv.timer = time.AfterFunc(flushAfter, kv.flushNow)
	}
	kv.mu.Unlock()
	if full {
		return kv.flush(version)
	}
	return nil
}

// flushNow writes whatever waits for the timer that calls it. A commit that comes later finds no
// timer and starts another.
func (kv *KV) flushNow() {
	kv.mu.Lock()
	kv.timer = nil
	kv.mu.Unlock()
	if err := kv.flush(math.MaxUint64); err != nil {
		kv.log.Error("changes that were already visible could not be written", zap.Error(err))
	}
}

// flush returns when the commits up to a version, at least, are in Badger. Callers that wait for
// another flush find that theirs was done with that of the next caller.
func (kv *KV) flush(version uint64) error {
	kv.flushing.Lock()
	defer kv.flushing.Unlock()
	l, err := kv.freeze(version)
	if l == nil {
		return err
	}
	if err = kv.writeLayer(l); err == nil {
		kv.settled(l)
		return nil
	}
	kv.fail(l, err)
	return err
}

// fail ends all commits, since a layer could not be written. What Badger does not have is no longer
// visible, as it will not be after the next start.
func (kv *KV) fail(l *layer, err error) {
	now := kv.newBase()
	kv.mu.Lock()
	kv.failed = err
	left := l.bytes + kv.active.bytes
	before := kv.base
	kv.frozen, kv.active, kv.base = nil, newLayer(), now
	kv.mu.Unlock()
	before.release()
	kv.space.done(left)
}

// freeze ends the active layer; it returns nil if all commits up to a version were written.
func (kv *KV) freeze(version uint64) (*layer, error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.failed != nil || kv.written >= version || kv.active.last == 0 {
		return nil, kv.failed
	}
	if kv.timer != nil {
		kv.timer.Stop()
		kv.timer = nil
	}
	kv.frozen, kv.active = kv.active, newLayer()
	kv.frozen.next = kv.active
	return kv.frozen, nil
}

// settled drops a layer that Badger has now.
func (kv *KV) settled(l *layer) {
	now := kv.newBase()
	kv.mu.Lock()
	before := kv.base
	kv.frozen, kv.base, kv.written = nil, now, l.last
	kv.mu.Unlock()
	before.release()
	kv.space.done(l.bytes)
}

// writeLayer writes a frozen layer to Badger, several commits in one of Badger's transactions.
func (kv *KV) writeLayer(l *layer) error {
	for commits := l.commits; len(commits) > 0; {
		n, err := kv.writeSome(commits)
		if err != nil {
			return err
		}
		commits = commits[n:]
	}
	return nil
}

// writeSome writes as many commits as fit into one transaction of Badger, and returns their
// number.
func (kv *KV) writeSome(commits []commit) (n int, err error) {
	b := batch{Txn: kv.db.NewTransaction(true), stamp: kv.stamp}
	defer b.Discard()
	count, size := int64(0), int64(0)
	for _, c := range commits {
		count, size = count+int64(len(c.writes)), size+c.size
		if n > 0 && (count+3 >= kv.db.MaxBatchCount() || size >= kv.db.MaxBatchSize()) {
			break
		}
		for i := range c.writes {
			if err = b.add(&c.writes[i]); err != nil {
				return 0, translate(err)
			}
		}
		n++
	}
	version, err := b.commit()
	if err != nil {
		return 0, translate(err)
	}
	kv.witnesses.saw(version)
	return n, nil
}

// batch is a transaction of Badger that only writes.
type batch struct {
	*badger.Txn

	stamp uint64 // for the entries that it sets
	// last is an entry that the commit sets; nil if it is not certain to set any.
	last *badger.Entry
}

func (b *batch) add(w *write) error {
	if w.deleted {
		if b.last != nil && string(b.last.Key) == w.key {
			b.last = nil
		}
		return b.Delete([]byte(w.key))
	}
	e := badger.NewEntry([]byte(w.key), w.value)
	e.ExpiresAt = b.stamp
	b.last = e
	return b.SetEntry(e)
}

// commit commits, and returns Badger's version. Each commit sets a key: the entry with the
// highest version survives all compactions, which drop deleted entries, so that the tables
// always show up to which version they reach.
func (b *batch) commit() (uint64, error) {
	if b.last == nil {
		if err := b.add(&write{key: markKey}); err != nil {
			return 0, err
		}
	}
	if err := b.Commit(); err != nil {
		return 0, err
	}
	return y.ParseTs(b.last.Key), nil // Badger has added the version to the key
}
