package badgerkv_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestFailedStaysFailed has a layer that Badger refuses while the journal is elsewhere. If that comes back, the next store has
// the changes that were accepted while it was there, and none that was reported as failed.
func TestFailedStaysFailed(t *testing.T) {
	for name, c := range map[string]struct{ away, back func(g *gone) error }{
		"the file, for a folder": {
			func(g *gone) error {
				return errors.Join(os.Rename(g.journal, g.journal+".old"), os.MkdirAll(g.journal+"/full", 0o700))
			},
			func(g *gone) error {
				return errors.Join(os.RemoveAll(g.journal), os.Rename(g.journal+".old", g.journal))
			},
		},
		"its folder": {
			func(g *gone) error { return os.Rename(g.runtime, g.runtime+".old") },
			func(g *gone) error { return os.Rename(g.runtime+".old", g.runtime) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			failsAway(newGone(t), c.away, c.back, (*badgerkv.KV).LookForJournal)
		})
		t.Run(name+", found by the change", func(t *testing.T) {
			g := newGone(t)
			failsAway(g, c.away, c.back, func(kv *badgerkv.KV) { g.do(kv.Flush()) })
		})
	}
}

// failsAway has a change fail while the journal is away, once a function has prepared that.
func failsAway(g *gone, away, back func(*gone) error, prepare func(*badgerkv.KV)) {
	g.t.Helper()
	g.set("a")
	g.do(away(g))
	prepare(g.kv)
	g.kv.Spoil()
	if err := g.kv.Update(g.t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("b"), nil) }); err == nil {
		g.t.Error("a change was accepted that is neither written nor in a journal that is there")
	}
	g.do(back(g))
	g.follows("[a]")
	if err := g.kv.Close(); err == nil {
		g.t.Error("Close does not report it")
	}
}

// TestFailedAfterPartAway has Badger take a change that was made while the journal was away, and refuse a later one: if the journal comes
// back, the change is not undone by an earlier one.
func TestFailedAfterPartAway(t *testing.T) {
	g := newGone(t)
	big := make([]byte, 900<<10) // Badger takes one of these at a time
	put := func(update func(context.Context, func(metadata.KVTxn) error) error, value string) error {
		return update(t.Context(), func(tx metadata.KVTxn) error {
			return errors.Join(tx.Set([]byte(value), big), tx.Set([]byte("k"), []byte(value)))
		})
	}
	g.do(put(g.kv.Update, "early"))
	g.do(os.Rename(g.runtime, g.runtime+".old"))
	g.kv.LookForJournal()
	g.do(errors.Join(put(g.kv.UpdateSoon, "late"), put(g.kv.UpdateSoon, "refused")))
	late := g.kv.Version() - 1
	g.kv.Spoil()
	if err := g.kv.Flush(); err == nil {
		t.Error("a change was written that Badger refuses")
	}
	if err := g.kv.FlushTo(late); err != nil {
		t.Fatalf("Badger has refused an earlier change, too, so the test proves nothing: %v", err)
	}
	g.do(os.Rename(g.runtime+".old", g.runtime))
	next := g.next()
	g.do(next.View(t.Context(), func(tx metadata.KVTxn) error {
		if value, err := tx.Get([]byte("k")); err != nil || string(value) != "late" {
			t.Errorf("the change is %q after the next start, %v", value, err)
		}
		return nil
	}))
	g.do(next.Close())
	if err := g.kv.Close(); err == nil {
		t.Error("Close does not report it")
	}
}

// TestFailedAfterPart has a layer of which Badger takes the first commits and refuses a later one: the commits that it has were not
// reported as failed, and the others are not there.
func TestFailedAfterPart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	kv := open(t, dir)
	kv.FlushAfter(time.Hour, time.Hour)
	big := make([]byte, 600<<10)
	set := func(key string) error {
		return kv.UpdateSoon(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte(key), big) })
	}
	if err := errors.Join(set("a"), set("b"), set("c")); err != nil {
		t.Fatal(err)
	}
	first := kv.Version() - 2
	kv.Spoil()
	if err := kv.Flush(); err == nil {
		t.Error("a change was written that Badger refuses")
	}
	for n, key := range []string{"a", "b", "c"} {
		err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
			_, err := tx.Get([]byte(key))
			return err
		})
		if there, failed := err == nil, kv.FlushTo(first+uint64(n)) != nil; there == failed {
			t.Errorf("%s: there: %v, reported as failed: %v", key, there, failed)
		}
	}
	if err := kv.Close(); err == nil {
		t.Error("Close does not report it")
	}
}
