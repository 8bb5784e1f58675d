package badgerkv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	memTableSize = 16 << 20
	cacheSize    = 16 << 20
	// maxValue bounds values and is Badger's own bound for those that are kept
	// out of the value log.
	maxValue     = 1 << 20
	valueLogSize = 1 << 20
)

// Options are what Open can be told.
type Options struct {
	// Dir is the directory; it is made, with mode 0700, when it is missing.
	Dir string
	// Logger receives Badger's messages; nil means they are dropped.
	Logger *zap.Logger
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
}

// KV is a metadata.KV in a directory, which no other process has open.
type KV struct {
	db     *badger.DB
	lock   *os.File
	closed atomic.Bool
}

var _ metadata.KV = (*KV)(nil)

// Open opens the store in a directory, and makes one where there is none.
//
// Errors: ErrLocked (a *LockedError) when another process has it open;
// metadata.ErrCorrupt (a *CorruptError) when Badger cannot make sense of what
// is there; what the operating system says about the directory.
func Open(ctx context.Context, opts Options) (*KV, error) {
	if err := errors.Join(opts.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	opts.EnsureDefaults()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make store: %w", err)
	}
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	db, err := openBadger(opts)
	if err != nil {
		return nil, errors.Join(&CorruptError{Dir: opts.Dir, Err: err}, unlockDir(lock))
	}
	return &KV{db: db, lock: lock}, nil
}

// openBadger opens the database; what Badger panics about is an error too.
func openBadger(opts Options) (db *badger.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("badger panicked: %v", p)
		}
	}()
	o := badger.DefaultOptions(opts.Dir)
	o.Logger = logger{opts.Logger.Named("badger")}
	o.BypassLockGuard = true // lockDir holds that lock
	o.SyncWrites = false
	o.DetectConflicts = true
	o.NumVersionsToKeep = 1
	o.Compression = options.None
	o.MetricsEnabled = false
	o.MemTableSize = memTableSize
	o.NumMemtables = 2
	o.BaseTableSize = memTableSize / 2
	o.BlockCacheSize = cacheSize
	o.NumCompactors = 2
	o.ChecksumVerificationMode = options.OnBlockRead
	o.ValueThreshold = maxValue
	o.ValueLogFileSize = valueLogSize
	if err := errors.Join(verifyTables(o), dropEmptyLogs(opts)); err != nil {
		return nil, err
	}
	return badger.Open(o)
}

// View runs fn over a snapshot; see metadata.KV.
func (kv *KV) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.begin(ctx); err != nil {
		return err
	}
	t := kv.db.NewTransaction(false)
	defer t.Discard()
	return fn((*txn)(t))
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
	if err := fn((*txn)(t)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return translate(t.Commit())
}

func (kv *KV) begin(ctx context.Context) error {
	if kv.closed.Load() {
		return metadata.ErrClosed
	}
	return ctx.Err()
}

// Close writes what is in memory to its tables and gives the directory free.
func (kv *KV) Close() error {
	if kv.closed.Swap(true) {
		return metadata.ErrClosed
	}
	return errors.Join(kv.db.Close(), unlockDir(kv.lock))
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
