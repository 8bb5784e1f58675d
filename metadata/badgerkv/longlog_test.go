package badgerkv_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	longLogKeys  = 14_000
	longLogValue = 1000
)

// longLog returns a directory as an earlier version left it when it was killed: its
// memtables and logs were twice as large.
func longLog(t *testing.T) string {
	t.Helper()
	from, to := t.TempDir(), t.TempDir()
	o := badger.DefaultOptions(from).WithLogger(nil).WithCompression(options.None).
		WithMemTableSize(16 << 20).WithValueThreshold(1 << 20).WithValueLogFileSize(1 << 20)
	db, err := badger.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < longLogKeys && err == nil; i += 500 {
		err = db.Update(func(tx *badger.Txn) (err error) {
			for j := i; j < i+500 && err == nil; j++ {
				err = tx.Set(fmt.Appendf(nil, "key%d", j), bytes.Repeat([]byte{byte(j)}, longLogValue))
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(to, "LOCK")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return to
}

// TestLongLog opens records whose log holds more than a memtable can take now.
func TestLongLog(t *testing.T) {
	dir := longLog(t)
	for range 2 {
		kv := open(t, dir)
		n := 0
		err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
			return tx.Scan([]byte("key"), nil, func(_, value []byte) (bool, error) {
				if len(value) == longLogValue {
					n++
				}
				return true, nil
			})
		})
		if err != nil || n != longLogKeys {
			t.Errorf("%d keys, %v; want %d", n, err, longLogKeys)
		}
		if err := kv.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
