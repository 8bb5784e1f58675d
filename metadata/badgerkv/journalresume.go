package badgerkv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// journalDamaged is logged where a damaged journal is mended.
const journalDamaged = "the journal of the records is damaged; changes that were just made are missing"

// resume writes the commits of a journal, which an earlier process had no time for, and goes on with
// it. If the process dies meanwhile, the next one does it again.
func (kv *KV) resume(ctx context.Context, opts Options) error {
	f := opts.Journal
	j, full, err := openJournal(f)
	if errors.Is(err, errJournal) && opts.MendJournal {
		kv.log.Error(journalDamaged, zap.Int("commits", 0), zap.Error(err))
		kv.cutOff()
		if err = f.Truncate(0); err == nil {
			j, full, err = openJournal(f)
		}
	}
	if err != nil {
		return journalFault(f, 0, err)
	}
	if full != nil {
		kv.log.Warn(journalless, zap.Error(full))
		return kv.resumeCopy(ctx, opts, j)
	}
	kv.flushing.Lock()
	kv.expects = j // also by what the replay writes, or the next process would not replay the rest
	kv.flushing.Unlock()
	todo, whole, err := kv.judge(j, opts)
	if err != nil {
		return err
	}
	if err = kv.replay(ctx, j, todo, whole); err != nil {
		return fmt.Errorf("write the journal of the records: %w", err)
	}
	j.begin(kv.stamp, kv.lastCommit())
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.journal = j
	return nil
}

// resumeCopy writes the commits of the copy of a journal, nil for none, and frees the file, which is not used.
func (kv *KV) resumeCopy(ctx context.Context, opts Options, j *journal) error {
	f := opts.Journal
	var err error
	if j != nil {
		todo, whole, jerr := kv.judge(j, opts)
		if jerr != nil {
			return jerr
		}
		if todo > 0 { // whatever the replay writes, it can be repeated
			_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, seal(math.MaxUint64>>16)), journalVersionAt)
		}
		if err == nil {
			err = kv.replay(ctx, j, todo, whole)
		}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("write the journal of the records: %w", err)
	}
	return nil
}

// judge returns the number of commits that are to be written to the records, before any is, and whether these are all.
//
// Errors: metadata.ErrCorrupt (a *JournalError) if the journal is damaged, unless the options say that it is mended. Then
// what is before the damage is to be written.
func (kv *KV) judge(j *journal, opts Options) (todo int, whole bool, err error) {
	if j.empty() {
		return 0, true, nil
	}
	fits, version := false, JournalVersion
	if !kv.Cut() {
		version, err = j.formatVersion()
		fits = err == nil && version == JournalVersion && j.fits(kv.stamp, kv.lastCommit())
	}
	if fits {
		todo, err = j.check()
	}
	switch {
	case err != nil && opts.MendJournal:
		kv.log.Error(journalDamaged, zap.Int("commits", todo), zap.Error(err))
		return todo, false, nil
	case err != nil:
		return 0, false, journalFault(opts.Journal, todo, err)
	case version != JournalVersion:
		kv.log.Warn(journalForeign, zap.Int("version", version), zap.String("file", opts.Journal.Name()))
	case !fits:
		kv.log.Warn(journalDropped)
	}
	return todo, true, nil
}

// cutOff records that changes are gone: content without a record is kept then, and the rest of the journal is never written.
func (kv *KV) cutOff() {
	kv.witnesses.cutOff()
	kv.cut.Store(true)
}

// replay writes the first commits of a journal, which are not the whole of a damaged one.
func (kv *KV) replay(ctx context.Context, j *journal, count int, whole bool) error {
	if count > 0 {
		if err := kv.redoFirst(ctx, j, count); err != nil {
			return err
		}
		kv.log.Info("wrote changes of records that the process before had no time for", zap.Int("commits", count))
	}
	if !whole {
		kv.cutOff()
	}
	return nil
}

// redoFirst makes the first commits of a journal again.
func (kv *KV) redoFirst(ctx context.Context, j *journal, count int) error {
	for writes, err := range j.commits() {
		if err == nil {
			err = kv.UpdateSoon(ctx, func(tx metadata.KVTxn) error { return redo(tx, writes) })
		}
		if err != nil {
			return err
		}
		if count--; count == 0 {
			break
		}
	}
	return kv.flush(math.MaxUint64)
}

// redo makes the changes of a commit again.
func redo(tx metadata.KVTxn, writes []change) error {
	for _, w := range writes {
		err := error(nil)
		if w.deleted {
			err = tx.Delete(w.key)
		} else {
			err = tx.Set(w.key, w.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unwritten returns the number of commits in a journal that the records do not have yet, whichever records these are.
//
// Errors: metadata.ErrCorrupt (a *JournalError) if the journal is damaged: the commits are those before that; those of the
// operating system about the file.
func Unwritten(f *os.File) (commits int, err error) {
	j, err := readJournal(f)
	if err == nil && j != nil && !j.empty() {
		version := 0
		if version, err = j.formatVersion(); version == JournalVersion {
			commits, err = j.check()
		}
	}
	return commits, journalFault(f, commits, err)
}

// journalFault returns an error of a journal, of which commits are undamaged, for others.
func journalFault(f *os.File, commits int, err error) error {
	if errors.Is(err, errJournal) {
		return &JournalError{Path: f.Name(), Commits: commits, Err: err}
	}
	return err
}

// lastCommit returns the version of Badger's last commit.
func (kv *KV) lastCommit() uint64 {
	tx := kv.db.NewTransaction(false)
	defer tx.Discard()
	return tx.ReadTs()
}
