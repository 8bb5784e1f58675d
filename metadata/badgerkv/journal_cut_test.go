package badgerkv_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// endsAt is a context that ends with an error when it is asked for the n-th time.
type endsAt struct {
	context.Context //nolint:containedctx // it is one

	left *atomic.Int64
	end  func() error
}

func (c endsAt) Err() error {
	if c.left.Add(-1) > 0 {
		return nil
	}
	return c.end()
}

func newEndsAt(t *testing.T, n int64, end func() error) endsAt {
	c := endsAt{t.Context(), new(atomic.Int64), end}
	c.left.Store(n)
	return c
}

// journaled returns the directory of a killed store, with three keys in Badger and changes that are in
// the journal alone: of each key one, so that afterwards "a" and "b" are there as "new", and "c" is not.
func journaled(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kv")
	kv := openJournaled(t, dir)
	kv.FlushAfter(time.Hour)
	err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
		return errors.Join(tx.Set([]byte("a"), []byte("old")), tx.Set([]byte("b"), []byte("old")), tx.Set([]byte("c"), []byte("old")))
	})
	for _, key := range []string{"a", "b", "c"} {
		err = errors.Join(err, kv.UpdateSoon(t.Context(), func(tx metadata.KVTxn) error {
			if key == "c" {
				return tx.Delete([]byte(key))
			}
			return tx.Set([]byte(key), []byte("new"))
		}))
	}
	killed := copyOf(t, dir)
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Fatal(err)
	}
	return killed
}

// checkReplayed opens a store and checks that all changes of journaled are there.
func checkReplayed(t *testing.T, dir string) {
	t.Helper()
	kv := openJournaled(t, dir)
	err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
		a, errA := tx.Get([]byte("a"))
		b, errB := tx.Get([]byte("b"))
		if string(a) != "new" || string(b) != "new" {
			t.Errorf("a is %q and b is %q, want both new", a, b)
		}
		if c, err := tx.Get([]byte("c")); !errors.Is(err, metadata.ErrNoKey) {
			t.Errorf("c is %q (%v), want none", c, err)
		}
		return errors.Join(errA, errB)
	})
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Error(err)
	}
}

// TestReplayCutOff cuts a replay off after a part of it has been written to Badger: the next store has all.
func TestReplayCutOff(t *testing.T) {
	dir := journaled(t)
	kv := open(t, dir)
	f, err := journalOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is mapped
	ended := errors.New("cut off")
	ctx := newEndsAt(t, 4, func() error { // in the second change
		if err := kv.Flush(); err != nil {
			t.Error(err)
		}
		return ended
	})
	if err := kv.Resume(ctx, f); !errors.Is(err, ended) {
		t.Fatalf("replay: %v, want it cut off", err)
	}
	checkReplayed(t, copyOf(t, dir))
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
}

// TestReplayFails has errors of the replay, which must not pass as damage of the journal: the store does not open,
// and the next one has all changes.
func TestReplayFails(t *testing.T) {
	dir := journaled(t)
	f, err := journalOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is mapped
	failed := 0
	for n := int64(2); failed < 5; n++ { // Open itself asks for the first time
		ctx := newEndsAt(t, n, func() error { return metadata.ErrCorrupt })
		kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: dir, Journal: f})
		if err == nil {
			t.Errorf("the replay that fails at step %d is taken for complete", n)
			if err = kv.Close(); err != nil {
				t.Error(err)
			}
			break
		}
		if failed++; !errors.Is(err, metadata.ErrCorrupt) {
			t.Errorf("open: %v, want the error of the replay", err)
		}
	}
	checkReplayed(t, dir)
}

// TestJournalDropped checks that changes which are dropped with a journal of other records are logged.
func TestJournalDropped(t *testing.T) {
	dir := journaled(t)
	other := open(t, dir)
	err := other.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("a"), []byte("other")) })
	if err = errors.Join(err, other.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} { // it is empty afterwards
		core, logs := observer.New(zap.WarnLevel)
		f, err := journalOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Journal: f, Logger: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(kv.Close(), f.Close()); err != nil {
			t.Error(err)
		}
		if logs.Len() != want {
			t.Errorf("%d warnings, want %d: %v", logs.Len(), want, logs.All())
		}
	}
}
