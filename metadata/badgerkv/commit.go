package badgerkv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// flushAfter is the time for which changes of UpdateSoon are collected.
	flushAfter = 250 * time.Millisecond
	// flushBytes is the size of a layer, as admitted, at which it is written at once. What may be
	// admitted beyond it is room for the changes that come meanwhile.
	flushBytes = maxUnderWay / 5 * 4
	// pauseAfter is the time without a change after which a layer of pauseBytes is written: it competes
	// with no caller then, and the next ones find room.
	pauseAfter = 10 * time.Millisecond
	pauseBytes = maxUnderWay / 8
	// keptWrites is the number of changes for which the memory of a transaction is used again.
	keptWrites = 1024
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
	t := kv.startUpdate()
	defer kv.endUpdate(t)
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

// startUpdate returns a transaction, in memory of one that has ended.
func (kv *KV) startUpdate() *txn {
	t, _ := kv.txns.Get().(*txn)
	if t == nil {
		t = &txn{update: true}
	}
	t.snapshot = kv.snapshot()
	return t
}

// endUpdate ends a transaction, whose changes are elsewhere or not wanted.
func (kv *KV) endUpdate(t *txn) {
	t.base.release()
	if len(t.writes) > keptWrites || cap(t.reads) > keptWrites {
		return
	}
	t.own.clear()
	clear(t.writes)
	*t = txn{own: t.own, reads: t.reads[:0], commit: commit{writes: t.writes[:0]}, update: true}
	kv.txns.Put(t)
}

// order makes the changes of an admitted transaction visible, behind all earlier ones.
//
// Errors: errConflict; why an earlier change could not be written.
func (kv *KV) order(t *txn) (version uint64, err error) {
	c := t.kept()
	if kv.journal != nil {
		sign(c.record)
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	switch {
	case kv.failed != nil:
		return 0, kv.failed
	case t.from.conflicts(t.version, t.reads):
		return 0, errConflict
	}
	if err = kv.journal.add(&c); err != nil {
		return 0, err
	}
	kv.version++
	kv.active.add(kv.version, c)
	return kv.version, nil
}

// kept returns a transaction's changes in memory of their own.
func (t *txn) kept() commit {
	c, n := t.commit, commitHead+binary.MaxVarintLen64
	for i := range c.writes {
		n += 2*binary.MaxVarintLen32 + len(c.writes[i].key) + len(c.writes[i].value)
	}
	c.writes = slices.Clone(c.writes)
	room := binary.AppendUvarint(make([]byte, commitHead, n), uint64(len(c.writes)))
	for i := range c.writes {
		room = c.writes[i].record(room)
	}
	c.record = room
	return c
}

// flushSoon has a commit written that need not be written yet, and reports whether the next process finds it without that. The
// first change of a layer looks whether the journal is where that process looks for it.
func (kv *KV) flushSoon(version uint64) (kept bool) {
	first := kv.setTimer()
	if kv.journal == nil {
		return false
	}
	if first {
		kv.keepJournal()
	}
	return kv.accepts(version)
}

// accepts reports whether the journal has a commit, and is where the next process looks for it. Then the commit is not reported as
// failed, nor are those before it, on which it may depend.
func (kv *KV) accepts(version uint64) bool {
	there := !kv.journal.file.gone.Load()
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if there && kv.failed == nil {
		kv.accepted = max(kv.accepted, version)
	}
	return there && version <= kv.accepted
}

// setTimer sets the timer that writes the active layer. It reports whether there was none.
func (kv *KV) setTimer() (first bool) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	wait := kv.flushAfter
	switch {
	case kv.active.bytes >= flushBytes:
		wait = 0
	case kv.active.bytes >= pauseBytes:
		wait = min(kv.pauseAfter, wait)
	}
	switch first = kv.timer == nil; {
	case first:
		kv.timer, kv.due = time.AfterFunc(wait, kv.flushNow), time.Now().Add(kv.flushAfter)
	case wait < kv.waits:
		kv.timer.Reset(wait)
	default:
		return first
	}
	kv.waits, kv.seen = wait, kv.version
	return first
}

// flushNow writes whatever waits for the timer that calls it, unless that has waited for a pause and there
// was none yet. A commit that comes later finds no timer and starts another.
func (kv *KV) flushNow() {
	kv.mu.Lock()
	if kv.timer != nil && kv.waits == kv.pauseAfter && kv.seen != kv.version && time.Now().Before(kv.due) {
		kv.seen = kv.version
		kv.timer.Reset(kv.waits)
		kv.mu.Unlock()
		return
	}
	kv.timer = nil
	kv.mu.Unlock()
	if err := kv.flush(math.MaxUint64); err != nil {
		kv.log.Error("changes that were already visible could not be written", zap.Error(err))
	}
}

// flush returns when the commits up to a version, at least, are in Badger. Callers that wait for
// another flush find that theirs was done with that of the next caller. An error means that the commit of
// that version is not there, now and after the next start.
func (kv *KV) flush(version uint64) error {
	kv.flushing.Lock()
	defer kv.flushing.Unlock()
	l, err := kv.freeze(version)
	if l == nil {
		return err
	}
	if kv.filter.Load().full() && kv.building == nil {
		kv.buildFilter()
	}
	left, err := kv.writeLayer(l)
	if err == nil {
		kv.settled(l, left)
		return nil
	}
	return kv.fail(version, left, err)
}

// fail ends all commits, since a layer could not be written, of which bytes were left. Without a journal, what
// Badger does not have is no longer visible, as it will not be after the next start. One that is elsewhere may come back: it keeps
// only what was accepted while it was there. It returns the error of a commit.
func (kv *KV) fail(version uint64, left int64, err error) error {
	now := kv.newBase()
	kv.mu.Lock()
	kv.failed = err
	left += kv.active.bytes
	if kv.journal != nil && !kv.journal.file.gone.Load() {
		kv.accepted = kv.version
	} else {
		kv.journal.cut(kv.frozen, kv.active, max(kv.accepted, kv.written))
		kv.frozen, kv.active, kv.base, now = nil, newLayer(nil), now, kv.base
	}
	err = kv.lostLocked(version)
	kv.mu.Unlock()
	now.release()
	kv.space.done(left)
	return err
}

// lostLocked returns why a commit is neither in Badger nor kept by the journal; nil if it is, or nothing failed.
//
// +checklocks:kv.mu
func (kv *KV) lostLocked(version uint64) error {
	if version <= max(kv.written, kv.accepted) {
		return nil
	}
	return kv.failed
}

// freeze ends the active layer; it returns nil if all commits up to a version were written.
func (kv *KV) freeze(version uint64) (*layer, error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.failed != nil || kv.written >= version || kv.active.last == 0 {
		return nil, kv.lostLocked(version)
	}
	if kv.timer != nil {
		kv.timer.Stop()
		kv.timer = nil
	}
	kv.frozen, kv.active = kv.active, newLayer(kv.active)
	kv.frozen.next = kv.active
	kv.journal.freeze()
	return kv.frozen, nil
}

// settled drops a layer that Badger has now, and ends the commits of its last bytes.
//
// +checklocks:kv.flushing
func (kv *KV) settled(l *layer, left int64) {
	wrote := kv.wrote
	now := kv.newBase()
	kv.mu.Lock()
	before := kv.base
	kv.frozen, kv.base, kv.written = nil, now, l.last
	kv.journal.settled(wrote)
	kv.mu.Unlock()
	before.release()
	kv.space.done(left)
}

// writeLayer writes a frozen layer to Badger, several commits in one of Badger's transactions. With each
// it ends what space admitted for these, so that others can be made meanwhile, except for the last: it
// returns how many bytes are left.
//
// +checklocks:kv.flushing
func (kv *KV) writeLayer(l *layer) (left int64, err error) {
	left = l.bytes
	for commits := l.commits; ; {
		n := len(commits)
		writes, fit := kv.needed(l, commits)
		for fit < n {
			n = max(1, min(fit-1, n-n/8)) // fewer replace others, so that there is more to write
			writes, fit = kv.needed(l, commits[:n])
		}
		if err = kv.writeSome(writes); err != nil || n == len(commits) {
			return left, err
		}
		written := int64(0)
		for i := range commits[:n] {
			written += commits[i].bytes
		}
		kv.space.done(written)
		kv.mu.Lock()
		kv.written = commits[n-1].number()
		kv.mu.Unlock()
		left, commits = left-written, commits[n:]
	}
}

// needed returns the changes that Badger needs of commits of a layer: of each key the last one, and
// none of a key that Badger does not have and that is removed again. If these are too many for one
// transaction of Badger, it returns instead how many commits may fit; a single one always does.
func (kv *KV) needed(l *layer, commits []commit) (writes []*change, fit int) {
	upTo, has := commits[len(commits)-1].number(), kv.filter.Load()
	size := int64(2*entrySize + len(markKey))
	for n, c := range commits {
		for i := range c.writes {
			w := &c.writes[i]
			if l.replaced(w, upTo) || l.removes(w) && has.lacks(w.hash) {
				continue
			}
			writes = append(writes, w)
			size += entrySize + int64(len(w.key)+len(w.value))
		}
		if len(commits) > 1 && (int64(len(writes))+3 >= kv.db.MaxBatchCount() || size >= kv.db.MaxBatchSize()) {
			return nil, n
		}
	}
	return writes, len(commits)
}

// writeSome writes changes in one transaction of Badger.
//
// +checklocks:kv.flushing
func (kv *KV) writeSome(writes []*change) error {
	if len(writes) == 0 {
		return nil
	}
	b := batch{Txn: kv.db.NewTransaction(true), stamp: kv.stamp, entries: make([]badger.Entry, len(writes)+1)}
	defer b.Discard()
	kv.expects.expect(b.ReadTs() + 1)
	for _, w := range writes {
		kv.willHave(w)
		if err := b.add(w); err != nil {
			return translate(err)
		}
	}
	version, err := b.commit()
	if err != nil {
		return translate(err)
	}
	kv.wrote = version
	kv.witnesses.saw(version)
	return nil
}

// batch is a transaction of Badger that only writes.
type batch struct {
	*badger.Txn

	stamp uint64 // for the entries that it sets
	// entries are unused; Badger keeps those that were used until the commit.
	entries []badger.Entry
	// last is an entry that the commit sets; nil if it is not certain to set any.
	last *badger.Entry
}

func (b *batch) add(w *change) error {
	if w.deleted {
		if b.last != nil && bytes.Equal(b.last.Key, w.key) {
			b.last = nil
		}
		return b.Delete(w.key)
	}
	e := &b.entries[0]
	b.entries = b.entries[1:]
	e.Key, e.Value, e.ExpiresAt = w.key, w.value, b.stamp
	b.last = e
	return b.SetEntry(e)
}

// commit commits, and returns Badger's version. Each commit sets a key: the entry with the
// highest version survives all compactions, which drop deleted entries, so that the tables
// always show up to which version they reach.
func (b *batch) commit() (uint64, error) {
	if b.last == nil {
		if err := b.add(&change{key: []byte(markKey)}); err != nil {
			return 0, err
		}
	}
	if err := b.Commit(); err != nil {
		return 0, err
	}
	return y.ParseTs(b.last.Key), nil // Badger has added the version to the key
}
