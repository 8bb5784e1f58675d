package badgerkv_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// first returns one file of a store.
func first(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return found[0]
}

// corruption is one way to damage the files of a store.
type corruption struct {
	name   string
	damage func(t *testing.T, dir string) error
}

func corruptions() []corruption {
	return []corruption{
		{"manifest overwritten", func(t *testing.T, dir string) error {
			t.Helper()
			return os.WriteFile(first(t, dir, "MANIFEST"), []byte("no manifest at all, but some text"), 0o600)
		}},
		{"table missing", func(t *testing.T, dir string) error {
			t.Helper()
			return os.Remove(first(t, dir, "*.sst"))
		}},
		{"table cut", func(t *testing.T, dir string) error {
			t.Helper()
			return os.Truncate(first(t, dir, "*.sst"), 100)
		}},
		{"table overwritten", func(t *testing.T, dir string) error {
			t.Helper()
			name := first(t, dir, "*.sst")
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, []byte(strings.Repeat("garbage ", int(info.Size()/8))), 0o600)
		}},
		{"last block damaged", func(t *testing.T, dir string) error {
			t.Helper()
			f, err := os.OpenFile(first(t, dir, "*.sst"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("some damage"), 20)
			return errors.Join(err, f.Close())
		}},
	}
}

// fill creates a store with a table.
func fill(t *testing.T, dir string) {
	t.Helper()
	kv := open(t, dir)
	for i := range 100 {
		err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
			return tx.Set(fmt.Appendf(nil, "key%d", i), []byte(strings.Repeat("v", i%7)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := kv.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCorrupt damages the files of a store in one way each.
func TestCorrupt(t *testing.T) {
	for _, test := range corruptions() {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir)
			if err := test.damage(t, dir); err != nil {
				t.Fatal(err)
			}
			_, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
			var corrupt *badgerkv.CorruptError
			if !errors.Is(err, metadata.ErrCorrupt) || !errors.As(err, &corrupt) || corrupt.Dir != dir {
				t.Fatalf("Open = %v, want a CorruptError", err)
			}
			// The lock must be free again, or the store could not be repaired.
			_, err = badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
			if errors.Is(err, badgerkv.ErrLocked) {
				t.Errorf("after a failed Open the directory stays locked: %v", err)
			}
		})
	}
}

// TestHalfWrittenTable opens a store with a table that the manifest does not list, as a
// crash during a flush leaves it. That is no damage.
func TestHalfWrittenTable(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "000777.sst"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	kv := open(t, dir)
	defer func() {
		if err := kv.Close(); err != nil {
			t.Error(err)
		}
	}()
	err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
		_, err := tx.Get([]byte("key42"))
		return err
	})
	if err != nil {
		t.Errorf("read beside a half-written table: %v", err)
	}
}

// TestSalvagedTwice damages restored records again, before a mount has used them: they are
// restored once more.
func TestSalvagedTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	opts := badgerkv.Options{Dir: dir, Witness: dir + ".witness"}
	oneKey(t, opts)
	look := opts
	look.LookOnly = true
	for _, o := range []badgerkv.Options{look, look, opts} {
		if err := os.Remove(filepath.Join(dir, "MANIFEST")); err != nil {
			t.Fatal(err)
		}
		if got, err := badgerkv.Salvage(t.Context(), look, nil, nil); err != nil || got == nil {
			t.Fatalf("Salvage = %v, %v", got, err)
		}
		again, err := badgerkv.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		err = again.View(t.Context(), func(tx metadata.KVTxn) error {
			_, missing := tx.Get([]byte("key"))
			return missing
		})
		if err = errors.Join(err, again.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestEarlierRecords opens records without a witness whose last commit only deleted, has
// compactions drop it, and kills the process: the next start must not report a gap.
func TestEarlierRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	const tables = 6 // one more than makes a compaction start
	for i := range tables {
		o := badger.DefaultOptions(dir).WithCompression(options.None).WithNumCompactors(0).WithLogger(nil)
		db, err := badger.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *badger.Txn) error {
			if i == tables-1 {
				return tx.Delete([]byte("key"))
			}
			return tx.Set([]byte("key"), []byte("value"))
		})
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err = kv.Flatten(); err != nil {
		t.Error(err)
	}
	killed := dir + ".killed"
	copyState(t, dir, killed)
	again, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: killed})
	if err != nil {
		t.Fatalf("Open after a kill: %v", err)
	}
	if err := errors.Join(again.Close(), kv.Close()); err != nil {
		t.Error(err)
	}
}

// oneKey creates a store with one key.
func oneKey(t *testing.T, opts badgerkv.Options) {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	err = kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("key"), []byte("value")) })
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Fatal(err)
	}
}
