package badgerkv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// memTableSize is the size, in bytes, at which a memtable becomes a table. It
	// bounds a transaction to 15 % of that, which maxValue has to fit into.
	memTableSize = 8 << 20
	// earlierMemTableSize is that of earlier versions, which leave longer logs.
	earlierMemTableSize = 16 << 20
	// tableSize is the size, in bytes, of the tables that compactions write. Up to 13
	// are built in memory at a time, and a value of 64 KiB takes three times its size
	// there.
	tableSize = 1 << 20
	cacheSize = 16 << 20
	// maxValue bounds values and is Badger's own bound for those that are kept
	// out of the value log.
	maxValue     = 1 << 20
	valueLogSize = 1 << 20
)

// DefaultReserve is the default of --reserve, in bytes: enough for the tables of
// the logs that may wait, and for two logs more.
const DefaultReserve = 64 << 20

// Options are those of Open.
type Options struct {
	// Dir is the directory; it is made, with mode 0700, when it is missing.
	Dir string
	// Reserve keeps so many bytes of the directory's file system from the changes
	// that ask Room: removals and Close need them. 0 keeps none.
	Reserve uint64
	// Witness is the path of a file outside of Dir that remembers what was
	// acknowledged, so that an older copy of Dir is known for one. It is to outlive
	// the process and not the machine, as what the records describe does. It is made,
	// and left by Close; empty means none.
	Witness string
	// LookOnly has Witness read, and not made or changed.
	LookOnly bool
	// Logger receives Badger's messages; nil means they are dropped.
	Logger *zap.Logger

	// readAt reads the files that are looked at; nil means ReadAt of os.File.
	readAt readerAt
}

// Validate reports all that is wrong with the options.
func (o *Options) Validate() error {
	if o.Dir == "" {
		return errors.New("badgerkv: no directory given")
	}
	return nil
}

// EnsureDefaults fills in what was left out.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.readAt == nil {
		o.readAt = (*os.File).ReadAt
	}
}

// KV is a metadata.KV in a directory, which no other process has open.
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
}

var (
	_ metadata.KV     = (*KV)(nil)
	_ metadata.Roomer = (*KV)(nil)
	_ metadata.Cutter = (*KV)(nil)
)

// Open opens the store in a directory, and makes one where there is none. It looks at
// all of the records before it opens anything for writing: those that are not whole
// are refused, and left as they are.
//
// Errors: ErrLocked (a *LockedError) when another process has it open;
// metadata.ErrCorrupt (a *CorruptError) when records are damaged, or Badger cannot
// make sense of them; metadata.ErrNoSpace (a *SpaceError) when there is no space for
// the logs; what the operating system says about the directory.
func Open(ctx context.Context, opts Options) (*KV, error) {
	if err := errors.Join(opts.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	opts.EnsureDefaults()
	if err := finishRepair(opts.Dir); err != nil {
		return nil, fmt.Errorf("finish a repair: %w", err)
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make store: %w", err)
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
	kv := &KV{lock: lock, spares: &spares{dir: lock}, log: opts.Logger}
	if err := kv.open(ctx, opts, found); err != nil {
		return nil, errors.Join(err, unlockDir(lock))
	}
	return kv, nil
}

// open opens records that are whole.
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
	if kv.space, err = newSpace(opts, kv.lock); err == nil {
		err = kv.testify(ctx, opts, found)
	}
	if err != nil {
		return errors.Join(err, kv.db.Close())
	}
	return nil
}

// markTables has the tables of records without a witness, which are those of an earlier
// hmcfs, tell how far they reach: compactions drop the last of their commits if that
// only deleted, and the log that begins behind it would seem to have lost something.
func markTables(db *badger.DB, opts Options, room *spares) (*badger.DB, error) {
	err := db.Update(func(tx *badger.Txn) error { return tx.Set([]byte(markKey), nil) })
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return openBadger(opts, room, memTableSize)
}

// longLogs reports whether a log may hold more than a memtable takes. In a memtable an
// entry takes up to twice its size in the log, and less than half as much again as
// memTableSize is there.
func (r *records) longLogs() bool {
	return slices.ContainsFunc(r.logs, func(l *logScan) bool { return l.end > memTableSize/2 })
}

// writeTables turns all logs into tables, with memtables that take what earlier
// versions have left in a log.
func writeTables(opts Options, room *spares) error {
	db, err := openBadger(opts, room, earlierMemTableSize)
	if err != nil {
		return err
	}
	return db.Close()
}

// testify writes the witnesses.
func (kv *KV) testify(ctx context.Context, opts Options, found *records) (err error) {
	w := &witness{id: found.id, boot: found.boot, dir: nameOf(opts.Dir), version: found.highest, cut: found.cut}
	if found.inside != nil {
		w.was = found.inside.was
	}
	known := w.id != token{}
	if !known {
		if w.id, err = newToken(); err != nil {
			return err
		}
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
		kv.log.Warn("records that were not whole were cut, or brought back: what has no record is kept", zap.String("dir", opts.Dir))
	}
	if known {
		return nil
	}
	// From here on the tables tell how far they reach.
	return kv.Update(ctx, func(tx metadata.KVTxn) error { return tx.Set([]byte(markKey), nil) })
}

// Cut is metadata.Cutter's.
func (kv *KV) Cut() bool { return kv.cut.Load() }

// Settle is metadata.Cutter's.
func (kv *KV) Settle() {
	kv.witnesses.settle()
	kv.cut.Store(false)
}

// heldPath names an open directory, and it alone: not one that takes its path.
func heldPath(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) }

// openBadger opens the database in the directory that is locked; what Badger
// panics about is an error too.
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
	o.DetectConflicts = true
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

// View runs fn over a snapshot; see metadata.KV.
func (kv *KV) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.begin(ctx); err != nil {
		return err
	}
	t := kv.db.NewTransaction(false)
	defer t.Discard()
	return fn(&txn{Txn: t})
}

// Update runs fn until its transaction meets no conflict; see metadata.KV.
func (kv *KV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	for {
		err := kv.try(ctx, fn)
		if !errors.Is(err, badger.ErrConflict) {
			return err
		}
	}
}

func (kv *KV) try(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.begin(ctx); err != nil {
		return err
	}
	t := kv.db.NewTransaction(true)
	defer t.Discard()
	w := txn{Txn: t, stamp: kv.stamp}
	if err := fn(&w); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.bytes == 0 {
		return translate(t.Commit())
	}
	w.bytes += entryRoom // of the mark
	if err := kv.space.admit(ctx, w.bytes); err != nil {
		return err
	}
	admitted := w.bytes
	defer kv.space.done(admitted)
	version, err := w.commit()
	if err == nil {
		kv.witnesses.saw(version)
	}
	return err
}

// Room is metadata.Roomer's: it answers a *SpaceError when less than the reserve
// is free.
func (kv *KV) Room(ctx context.Context) error { return kv.space.room(ctx) }

func (kv *KV) begin(ctx context.Context) error {
	if kv.closed.Load() {
		return metadata.ErrClosed
	}
	return ctx.Err()
}

// closeLimit bounds the time in which Badger writes its last tables.
const closeLimit = time.Minute

// Close writes what is in memory to its tables and gives the directory free.
// Where Badger can't write them it is left as it is, and the directory stays locked
// until the process ends: what was committed is in the logs, which the next Open
// reads.
//
// Errors: ErrGone (a *GoneError) when the directory, and with it the logs, is
// gone; what the operating system says about the directory.
func (kv *KV) Close() error {
	if kv.closed.Swap(true) {
		return metadata.ErrClosed
	}
	kv.space.drain()
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
			return errors.Join(err, kv.witnesses.close(), kv.space.removeNext(), unlockDir(kv.lock))
		case <-look.C:
		}
		err := kv.space.finishable()
		if err == nil && time.Now().After(limit) {
			err = fmt.Errorf("the tables in %s were not written in %v", kv.space.dir, closeLimit)
		}
		if err != nil {
			return kv.leave(err)
		}
	}
}

// leave gives up on writing the last tables. A lack of space is no error: nothing
// is lost.
func (kv *KV) leave(err error) error {
	if errors.Is(err, metadata.ErrNoSpace) {
		kv.log.Warn("the records stay in their logs; the next start reads them", zap.Error(err))
		return nil
	}
	return fmt.Errorf("write the last tables: %w", err)
}

// translate turns Badger's errors into those of the seam.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, badger.ErrKeyNotFound):
		return metadata.ErrNoKey
	case errors.Is(err, badger.ErrTxnTooBig):
		return metadata.ErrTooLarge
	case errors.Is(err, badger.ErrReadOnlyTxn):
		return metadata.ErrReadOnly
	case errors.Is(err, badger.ErrDBClosed), errors.Is(err, badger.ErrBlockedWrites):
		return metadata.ErrClosed
	}
	return err
}
