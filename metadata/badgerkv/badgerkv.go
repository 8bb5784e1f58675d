package badgerkv

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// KV is a metadata.KV in a directory, which it locks against other processes.
type KV struct {
	db        *badger.DB
	lock      *os.File
	space     *space
	witnesses *witnesses
	spares    *spares
	stamp     uint64 // of the store's entries
	log       *zap.Logger
	cut       atomic.Bool
	closed    atomic.Bool
	seed      maphash.Seed
	txns      sync.Pool // of *txn that have ended
	// flushAfter and pauseAfter are the constants, except in tests.
	flushAfter time.Duration
	pauseAfter time.Duration

	// filter is that of new snapshots; nil until it is built.
	filter atomic.Pointer[filter]
	// builds waits for filters that are being built.
	builds sync.WaitGroup

	// flushing is held while a layer is written to Badger.
	flushing sync.Mutex
	// building is a filter that is being built; nil for none.
	// +checklocks:flushing
	building *filter
	// wrote is the version of Badger's last commit that this process has made; 0 for none.
	// +checklocks:flushing
	wrote uint64
	// expects is the journal that records which version Badger gets; nil for none. It is journal, or
	// before the first commit one that is being replayed.
	// +checklocks:flushing
	expects *journal

	// mu guards what follows.
	mu sync.RWMutex
	// version is that of the last commit, and written that of the last one in Badger.
	// +checklocks:mu
	version, written uint64
	// accepted is the version of the last commit that was accepted because the journal has it.
	// +checklocks:mu
	accepted uint64
	// active is the layer of new commits, frozen the one that is being written; nil for none.
	// +checklocks:mu
	active, frozen *layer
	// base reads what Badger has, without active and frozen.
	// +checklocks:mu
	base *base
	// timer will write the active layer, at last when that is due; nil for none. It waits for a time, before
	// which the last commit was seen.
	// +checklocks:mu
	timer *time.Timer
	// +checklocks:mu
	due time.Time
	// +checklocks:mu
	waits time.Duration
	// +checklocks:mu
	seen uint64
	// failed is why a layer could not be written; there are no more commits then.
	// +checklocks:mu
	failed error
	// journal has the layers for the process that follows; nil for none. It is set before the first commit
	// that Open does not make itself.
	journal *journal
}

var (
	_ metadata.KV       = (*KV)(nil)
	_ metadata.Roomer   = (*KV)(nil)
	_ metadata.Deferrer = (*KV)(nil)
	_ metadata.Cutter   = (*KV)(nil)
)

// Open opens the store in a directory, and creates one if there is none. It inspects all
// records before it opens anything for writing: incomplete records are refused and left
// unchanged.
//
// Errors: ErrLocked (a *LockedError) if another process has it open; metadata.ErrCorrupt (a
// *CorruptError) if records are damaged, or Badger cannot interpret them, or (a *JournalError) if the journal is damaged;
// metadata.ErrNoSpace (a *SpaceError) if there is no space for the logs; errors of the
// operating system about the directory.
func Open(ctx context.Context, opts Options) (*KV, error) {
	if err := errors.Join(opts.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	opts.EnsureDefaults()
	if err := finishRepair(opts.Dir); err != nil {
		return nil, fmt.Errorf("finish a repair: %w", err)
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create store: %w", err)
	}
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	found, err := inspect(opts)
	if err == nil {
		err = errors.Join(found.err(), dropRepair(opts.Dir))
	}
	if err == nil {
		err = enoughToOpen(opts, lock)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	kv := &KV{lock: lock, spares: &spares{dir: lock}, log: opts.Logger, seed: maphash.MakeSeed(), flushAfter: flushAfter, pauseAfter: pauseAfter}
	if err := kv.open(ctx, opts, found); err != nil {
		return nil, errors.Join(err, unlockDir(lock))
	}
	return kv, nil
}

// open opens records that were found to be complete.
func (kv *KV) open(ctx context.Context, opts Options, found *records) (err error) {
	if found.fresh && opts.Witness != "" && !opts.LookOnly {
		if err = os.Remove(opts.Witness); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the witness of other records: %w", err)
		}
	}
	if err = signLock(kv.lock); err != nil {
		return fmt.Errorf("lock store: %w", err)
	}
	if err = dropUseless(opts, found.useless); err != nil {
		return err
	}
	if found.longLogs() {
		err = writeTables(opts, kv.spares)
	}
	if err == nil {
		kv.db, err = openBadger(opts, kv.spares, memTableSize)
	}
	if err == nil && found.id == (token{}) && !found.fresh {
		kv.db, err = markTables(kv.db, opts, kv.spares)
	}
	if err != nil {
		return &CorruptError{Dir: opts.Dir, Err: err, held: heldPath(kv.lock)}
	}
	kv.begins()
	if kv.space, err = newSpace(opts, kv.lock); err == nil {
		err = kv.testify(ctx, opts, found)
	}
	if err == nil && opts.Journal != nil {
		opts.MendJournal = opts.MendJournal || found.fresh // it is of others
		err = kv.resume(ctx, opts)
	}
	if err != nil {
		return errors.Join(err, kv.abandon(err))
	}
	return nil
}

// abandon closes records that could not be opened for a cause, after what is in progress.
func (kv *KV) abandon(cause error) error {
	kv.closed.Store(true)
	kv.flushing.Lock()
	kv.mu.Lock()
	if kv.failed == nil {
		kv.failed = cause // a timer that has begun writes nothing
	}
	if kv.timer != nil {
		kv.timer.Stop()
	}
	kv.base.release()
	kv.mu.Unlock()
	kv.flushing.Unlock()
	kv.builds.Wait()
	return errors.Join(kv.db.Close(), kv.witnesses.close(), kv.closeJournal())
}

// closeJournal unmaps the journal. Nothing is written any more.
func (kv *KV) closeJournal() error {
	kv.flushing.Lock()
	defer kv.flushing.Unlock()
	return kv.expects.close()
}

// begins makes the first layer, above what Badger has.
func (kv *KV) begins() {
	b := kv.newBase()
	kv.mu.Lock()
	kv.base, kv.active = b, newLayer(nil)
	kv.mu.Unlock()
	kv.flushing.Lock()
	defer kv.flushing.Unlock()
	kv.buildFilter()
}

// ends writes all changes, and returns when no more are in progress.
func (kv *KV) ends() error {
	err := kv.flush(math.MaxUint64)
	kv.builds.Wait()
	kv.space.drain()
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.base.release()
	return err
}

// markTables writes markKey, so that the tables record up to which version they reach. It
// is for records without a witness, which come from an earlier hmcfs: compactions drop the
// last of their commits if it only deleted, and the log that follows would then seem to
// have a gap before it.
func markTables(db *badger.DB, opts Options, room *spares) (*badger.DB, error) {
	err := db.Update(func(tx *badger.Txn) error { return tx.Set([]byte(markKey), nil) })
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return openBadger(opts, room, memTableSize)
}

// longLogs reports whether a log may hold more than a memtable can take. An entry takes up
// to twice as much space in a memtable as in the log, and a memtable has room for less than
// 1.5 times memTableSize.
func (r *records) longLogs() bool {
	return slices.ContainsFunc(r.logs, func(l *logScan) bool { return l.end > memTableSize/2 })
}

// writeTables turns all logs into tables, using memtables large enough for the logs of
// earlier versions.
func writeTables(opts Options, room *spares) error {
	db, err := openBadger(opts, room, earlierMemTableSize)
	if err != nil {
		return err
	}
	return db.Close()
}

// testify creates the witnesses.
func (kv *KV) testify(ctx context.Context, opts Options, found *records) (err error) {
	w := &witness{id: found.id, boot: found.boot, dir: nameOf(opts.Dir), version: found.highest, cut: found.cut}
	if found.inside != nil {
		w.was = found.inside.was
	}
	known := w.id != token{}
	if !known {
		w.id = newToken()
	}
	paths := []string{filepath.Join(heldPath(kv.lock), witnessFile)}
	if opts.Witness != "" && !opts.LookOnly {
		paths = append(paths, opts.Witness)
	}
	if kv.witnesses, err = openWitnesses(w, paths); err != nil {
		return err
	}
	kv.stamp = w.id.stamp()
	kv.cut.Store(w.cut)
	if w.cut {
		kv.log.Warn("incomplete records were truncated or restored from an older state; content without a record is kept", zap.String("dir", opts.Dir))
	}
	if known {
		return nil
	}
	// From here on the tables record up to which version they reach.
	return kv.Update(ctx, func(tx metadata.KVTxn) error { return tx.Set([]byte(markKey), nil) })
}

// Cut implements metadata.Cutter.
func (kv *KV) Cut() bool { return kv.cut.Load() }

// Settle implements metadata.Cutter.
func (kv *KV) Settle() {
	kv.witnesses.settle()
	kv.cut.Store(false)
}

// openBadger opens the database in the locked directory. A panic of Badger is returned as
// an error.
func openBadger(opts Options, room *spares, memTable int64) (db *badger.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("badger panicked: %v", p)
		}
	}()
	dir := room.dir
	o := badger.DefaultOptions(opts.Dir)
	o.Logger = logger{opts.Logger.Named("badger"), strings.NewReplacer(heldPath(dir), opts.Dir), room}
	o.BypassLockGuard = true // lockDir holds that lock
	o.SyncWrites = false
	o.DetectConflicts = false // the layers detect them
	o.NumVersionsToKeep = 1
	o.Compression = options.None
	o.MetricsEnabled = false
	o.MemTableSize = memTable
	o.NumMemtables = 2
	o.BaseTableSize = tableSize
	o.TableSizeMultiplier = 1
	o.BlockCacheSize = cacheSize
	o.NumCompactors = 2
	o.ChecksumVerificationMode = options.OnBlockRead
	o.ValueThreshold = maxValue
	o.ValueLogFileSize = valueLogSize
	o.Dir, o.ValueDir = heldPath(dir), heldPath(dir)
	allocateMaps()
	if db, err = badger.Open(o); err != nil {
		return nil, err
	}
	if err = freeBuilders(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// View runs fn on a snapshot; see metadata.KV.
func (kv *KV) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.begin(ctx); err != nil {
		return err
	}
	t := txn{snapshot: kv.snapshot()}
	defer t.base.release()
	return fn(&t)
}

// Update runs fn, repeating it until its transaction has no conflict; see metadata.KV.
func (kv *KV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	version, err := kv.run(ctx, fn, false)
	if err != nil || version == 0 {
		return err
	}
	if kv.journal == nil || !kv.flushSoon(version) {
		return kv.flush(version)
	}
	return nil
}

// UpdateSoon is Update without a wait for Badger; see metadata.Deferrer.
func (kv *KV) UpdateSoon(ctx context.Context, fn func(metadata.KVTxn) error) error {
	version, err := kv.run(ctx, fn, true)
	if err != nil || version == 0 {
		return err
	}
	kv.flushSoon(version)
	return nil
}

// Room implements metadata.Roomer: it returns a *SpaceError if less than the reserve is
// free.
func (kv *KV) Room(ctx context.Context) error { return kv.space.room(ctx) }

func (kv *KV) begin(ctx context.Context) error {
	if kv.closed.Load() {
		return metadata.ErrClosed
	}
	return ctx.Err()
}

// closeLimit bounds the time that Badger may take to write its last tables.
const closeLimit = time.Minute

// Close writes the memtables to tables and unlocks the directory. If Badger can't write
// them, it is left running and the directory stays locked until the process ends; the
// committed data is in the logs, which the next Open reads.
//
// Errors: ErrGone (a *GoneError) if the directory, and with it the logs, was removed;
// errors of the operating system about the directory.
func (kv *KV) Close() error {
	if kv.closed.Swap(true) {
		return metadata.ErrClosed
	}
	if err := kv.ends(); err != nil {
		return kv.leave(err)
	}
	if err := kv.space.finishable(); err != nil {
		return kv.leave(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- kv.db.Close() }()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for limit := time.Now().Add(closeLimit); ; {
		select {
		case err := <-ended:
			return errors.Join(err, kv.witnesses.close(), kv.closeJournal(), kv.space.removeNext(), unlockDir(kv.lock))
		case <-look.C:
		}
		err := kv.space.finishable()
		if err == nil && time.Now().After(limit) {
			err = fmt.Errorf("the tables in %s were not written within %v", kv.space.dir, closeLimit)
		}
		if err != nil {
			return kv.leave(err)
		}
	}
}

// leave gives up writing the last tables. A lack of space is no error: no data is lost.
func (kv *KV) leave(err error) error {
	if errors.Is(err, metadata.ErrNoSpace) {
		kv.log.Warn("the last tables were not written; the next start reads these records from the logs", zap.Error(err))
		return nil
	}
	return fmt.Errorf("write the last tables: %w", err)
}

// IsEmpty reports whether Open would create a new store in a directory.
func IsEmpty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(dir + mendedSuffix)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return false, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return err == nil && noRecords(names), err
}
