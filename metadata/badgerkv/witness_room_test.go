package badgerkv_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestWitnessWithoutRoom opens the store of a killed process when the disk of its witness has no room for another page, and is not
// misled by a second name of the page, which is that of a copy.
func TestWitnessWithoutRoom(t *testing.T) {
	onDisk(t, func(t *testing.T, disk string) {
		dir, witness := filepath.Join(t.TempDir(), "kv"), filepath.Join(disk, "witness")
		opens := func() (*badgerkv.KV, error) {
			return badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Witness: witness})
		}
		kv, err := opens()
		if err != nil {
			t.Fatal(err)
		}
		set := func(kv *badgerkv.KV, key string) error {
			return kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte(key), []byte("1")) })
		}
		if err = errors.Join(set(kv, "a"), kv.Close(), fillUp(filepath.Join(disk, "filler"), kit.Bytes(1, 0, 1<<20))); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"b", "c"} {
			if kv, err = opens(); err != nil {
				t.Fatal(err)
			}
			if err = errors.Join(set(kv, key), kv.Close()); err != nil {
				t.Error(err)
			}
		}
		copied := filepath.Join(disk, "copy")
		if err = errors.Join(os.Remove(filepath.Join(disk, "filler")), os.Link(witness, copied)); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(copied)
		if err != nil {
			t.Fatal(err)
		}
		if kv, err = opens(); err != nil {
			t.Fatal(err)
		}
		if err = errors.Join(set(kv, "d"), kv.Close()); err != nil {
			t.Error(err)
		}
		if now, err := os.ReadFile(copied); err != nil || string(now) != string(before) {
			t.Errorf("a copy of the witness has changed: %v", err)
		}
		if kv, err = opens(); err != nil {
			t.Fatal(err)
		}
		if got := keysOf(t, kv); got != "[a b c d]" {
			t.Errorf("the keys are %s", got)
		}
		if err = kv.Close(); err != nil {
			t.Error(err)
		}
	})
}
