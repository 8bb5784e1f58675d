package badgerkv_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestJournalGone removes and replaces the file of the journal while the store is open: the changes after that survive a kill,
// and the log names the file.
func TestJournalGone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(path string) error
		// stays is set if the journal can't be made anew.
		stays bool
	}{
		"removed": {os.Remove, false},
		"replaced": {func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("other"), 0o600))
		}, false},
		"renamed":                 {func(path string) error { return os.Rename(path, path+".old") }, false},
		"replaced by a folder":    {func(path string) error { return errors.Join(os.Remove(path), os.MkdirAll(path+"/full", 0o700)) }, true},
		"removed with its folder": {func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, true},
		"removed, and comes back": {func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.Rename(path+".old", path))
		}, false},
		"a link that leads nowhere": {func(path string) error { return errors.Join(os.Remove(path), os.Symlink("nowhere", path)) }, false},
	} {
		t.Run(name, func(t *testing.T) { journalGone(t, c.spoil, c.stays, strings.HasSuffix(name, "comes back")) })
	}
}

func journalGone(t *testing.T, spoil func(string) error, stays, silent bool) {
	t.Helper()
	dir, runtime := filepath.Join(t.TempDir(), "kv"), filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(runtime, "journal")
	core, logs := observer.New(zap.WarnLevel)
	begin := func(dir, journal string) *badgerkv.KV {
		t.Helper()
		f, err := os.OpenFile(journal, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // it is mapped
		kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Journal: f, Logger: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	kv := begin(dir, journal)
	kv.FlushAfter(time.Hour, time.Hour)
	set := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			if err := kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte(key), []byte(key)) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	// killed returns what a store has that follows at this moment.
	killed := func() string {
		t.Helper()
		at := filepath.Join(t.TempDir(), "kv")
		if err := os.CopyFS(at, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(journal); err == nil {
			if err = os.WriteFile(at+".journal", data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		next := begin(at, at+".journal")
		defer next.Close() //nolint:errcheck // it was only read
		return keysOf(t, next)
	}
	set("a", "b")
	if err := errors.Join(kv.Flush(), spoil(journal)); err != nil {
		t.Fatal(err)
	}
	set("c")
	if got := killed(); got != "[a b c]" {
		t.Errorf("after the first change there are %s", got)
	}
	set("d", "e")
	if got := killed(); got != "[a b c d e]" {
		t.Errorf("after more there are %s", got)
	}
	if err := kv.Flush(); err != nil {
		t.Error(err)
	}
	set("f")
	if got := killed(); got != "[a b c d e f]" {
		t.Errorf("after another layer there are %s", got)
	}
	said := logs.FilterField(zap.String("file", journal)).All()
	if silent != (len(said) == 0) || len(said) > 1 {
		t.Errorf("logged: %v", logs.All())
	}
	if err := os.RemoveAll(journal); stays && err == nil && os.MkdirAll(runtime, 0o700) == nil {
		if err = kv.Flush(); err != nil {
			t.Error(err)
		}
		kit.Eventually(t, time.Minute, func() error {
			set("g", "h")
			if !kv.Waits() {
				return errors.New("a change still waits for Badger")
			}
			return nil
		})
		if got := killed(); got != "[a b c d e f g h]" {
			t.Errorf("with a journal again there are %s", got)
		}
	}
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
}
