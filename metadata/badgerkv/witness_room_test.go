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
		dir, witness, filler, copied := filepath.Join(t.TempDir(), "kv"), filepath.Join(disk, "witness"), filepath.Join(disk, "filler"), filepath.Join(disk, "copy")
		set := func(key string) error {
			kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Witness: witness})
			if err != nil {
				return err
			}
			return errors.Join(kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte(key), []byte("1")) }), kv.Close())
		}
		err := errors.Join(set("a"), fillUp(filler, kit.Bytes(1, 0, 1<<20)), set("b"), set("c"), os.Remove(filler), os.Link(witness, copied))
		before, berr := os.ReadFile(copied)
		err = errors.Join(err, berr, set("d"))
		now, nerr := os.ReadFile(copied)
		if err = errors.Join(err, nerr); err != nil {
			t.Fatal(err)
		}
		if string(now) != string(before) {
			t.Error("a copy of the witness has changed")
		}
		kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Witness: witness})
		if err != nil {
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
