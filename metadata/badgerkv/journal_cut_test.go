package badgerkv_test

import (
	"bytes"
	"context"
	"errors"
	"os"
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
	kv.FlushAfter(time.Hour, time.Hour)
	err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
		return errors.Join(tx.Set([]byte("a"), []byte("old")), tx.Set([]byte("b"), []byte("old")), tx.Set([]byte("c"), []byte("old")))
	})
	err = errors.Join(err, kv.Flush())
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
		kv, failure := badgerkv.Open(ctx, badgerkv.Options{Dir: dir, Journal: f})
		if failure == nil {
			t.Errorf("the replay that fails at step %d is taken for complete", n)
			if err = kv.Close(); err != nil {
				t.Error(err)
			}
			break
		}
		if failed++; !errors.Is(failure, metadata.ErrCorrupt) {
			t.Errorf("open: %v, want the error of the replay", failure)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if left := bytes.Count(maps, []byte(dir)); left > 0 {
		t.Errorf("%d files of stores that did not open are mapped", left)
	}
	checkReplayed(t, dir)
}

// TestJournalDropped checks that changes which are dropped are logged: with a journal of other records, and of another
// version.
func TestJournalDropped(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, dir string, f *os.File) error{
		"changed without it": func(t *testing.T, dir string, _ *os.File) error {
			other := open(t, dir)
			err := other.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("a"), []byte("other")) })
			return errors.Join(err, other.Close())
		},
		"another version": func(_ *testing.T, _ string, f *os.File) error { return badgerkv.OfAnotherVersion(f.Name()) },
		"the version before": func(_ *testing.T, _ string, f *os.File) error { // which had no checksum
			_, err := f.WriteAt(append([]byte("hmcfs journal 2\n"), make([]byte, 48)...), 0)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) { checkDropped(t, spoil) })
	}
}

func checkDropped(t *testing.T, spoil func(t *testing.T, dir string, f *os.File) error) {
	dir := journaled(t)
	f, err := journalOf(dir)
	if err == nil {
		err = errors.Join(spoil(t, dir, f), f.Close())
	}
	if err != nil {
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
