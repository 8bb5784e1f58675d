package badgerkv_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// journalOf opens the journal of a store in a directory.
func journalOf(dir string) (*os.File, error) {
	return os.OpenFile(dir+".journal", os.O_RDWR|os.O_CREATE, 0o600)
}

// openJournaled opens a store with its journal.
func openJournaled(t *testing.T, dir string) *badgerkv.KV {
	t.Helper()
	f, err := journalOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is mapped
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Journal: f})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// copyOf copies the files of a store and its journal, as a kill at a moment leaves them in which Badger makes no table of a log.
func copyOf(t *testing.T, dir string) (to string) {
	t.Helper()
	kit.Eventually(t, time.Minute, func() error {
		to = filepath.Join(t.TempDir(), "copy")
		before, err := filesOf(dir)
		data, jerr := os.ReadFile(dir + ".journal")
		err = errors.Join(err, jerr, os.WriteFile(to+".journal", data, 0o600), os.CopyFS(to, os.DirFS(dir)))
		after, aerr := filesOf(dir)
		if err = errors.Join(err, aerr); err == nil && before != after {
			err = errors.New("Badger has changed its tables")
		}
		return err
	})
	return to
}

// filesOf returns the names of the files of a store, and the list of its tables.
func filesOf(dir string) (string, error) {
	names, err := os.ReadDir(dir)
	manifest, merr := os.ReadFile(filepath.Join(dir, "MANIFEST"))
	return fmt.Sprintf("%v %x", names, manifest), errors.Join(err, merr)
}

// TestJournal has changes that are in the journal alone, beside some that are written: the next store
// has all, in their order. One that dies while it writes them has the same, and a store that was
// closed leaves nothing to write.
func TestJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	kv := openJournaled(t, dir)
	kv.FlushAfter(time.Hour, time.Hour)
	want, rng := map[string]string{}, rand.New(rand.NewPCG(1, 2))
	change := func(turn int) {
		t.Helper()
		key, value := fmt.Sprint(rng.IntN(50)), fmt.Sprint(turn)+string(bytes.Repeat([]byte("-"), rng.IntN(300)))
		update := kv.UpdateSoon
		if turn%100 == 50 {
			update = kv.Update
		}
		err := update(t.Context(), func(tx metadata.KVTxn) error {
			if turn%3 == 0 {
				delete(want, key)
				return tx.Delete([]byte(key))
			}
			want[key] = value
			return errors.Join(tx.Set([]byte(key), []byte("first")), tx.Set([]byte(key), []byte(value)))
		})
		if turn%100 == 60 {
			err = errors.Join(err, kv.Flush())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(dir string, want map[string]string) *badgerkv.KV {
		t.Helper()
		next := openJournaled(t, dir)
		got := map[string]string{}
		err := next.View(t.Context(), func(tx metadata.KVTxn) error {
			return tx.Scan(nil, nil, func(key, value []byte) (bool, error) {
				got[string(key)] = string(value)
				return true, nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d keys are there, want %d, or they have other values", len(got), len(want))
		}
		return next
	}
	for turn := range 280 {
		change(turn)
	}
	killed := copyOf(t, dir)
	again := check(killed, want)
	copied := copyOf(t, killed) // not closed, as by a second kill
	for _, kv := range []*badgerkv.KV{again, check(copied, want), kv} {
		if err := kv.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := check(dir, want).Close(); err != nil {
		t.Error(err)
	}
}

// TestStaleJournal has journals that must not be written: of other records, and of records that were changed by a program
// without a journal.
func TestStaleJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	kv := openJournaled(t, dir)
	kv.FlushAfter(time.Hour, time.Hour)
	set := func(key, value string) func(metadata.KVTxn) error {
		return func(tx metadata.KVTxn) error { return tx.Set([]byte(key), []byte(value)) }
	}
	if err := errors.Join(kv.Update(t.Context(), set("a", "0")), kv.Flush()); err != nil {
		t.Fatal(err)
	}
	older := copyOf(t, dir)
	err := errors.Join(kv.Update(t.Context(), set("a", "1")), kv.Flush(), kv.Update(t.Context(), set("a", "2")), kv.UpdateSoon(t.Context(), set("b", "2")))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		spoil func(dir string)
		want  string
	}{
		"of the records": {func(string) {}, "2"},
		"of records that another program has changed": {func(dir string) {
			other := open(t, dir)
			if err := errors.Join(other.Update(t.Context(), set("a", "3")), other.Close()); err != nil {
				t.Error(err)
			}
		}, "3"},
		"of other records": {func(dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			other := open(t, dir)
			if err := errors.Join(other.Update(t.Context(), set("a", "4")), other.Close()); err != nil {
				t.Error(err)
			}
		}, "4"},
		"of an older copy of the records": {func(dir string) {
			if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(older))); err != nil {
				t.Error(err)
			}
		}, "0"},
		"of another boot of the machine": {func(dir string) {
			if err := badgerkv.OfAnotherBoot(dir + ".journal"); err != nil {
				t.Error(err)
			}
		}, "1"},
		"of another version": {func(dir string) {
			if err := badgerkv.OfAnotherVersion(dir + ".journal"); err != nil {
				t.Error(err)
			}
		}, "1"},
	}
	for name, c := range cases {
		at := copyOf(t, dir)
		c.spoil(at)
		next := openJournaled(t, at)
		err := next.View(t.Context(), func(tx metadata.KVTxn) error {
			got, err := tx.Get([]byte("a"))
			if string(got) != c.want {
				t.Errorf("%s: a is %q, want %q", name, got, c.want)
			}
			return err
		})
		if err = errors.Join(err, next.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
}
