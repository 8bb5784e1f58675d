package badgerkv_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// record forges an entry of a log, correct in everything that a user can know.
func record(meta byte, key string, version uint64, value []byte) []byte {
	name := binary.BigEndian.AppendUint64([]byte(key), ^version)
	out := []byte{meta, 0}
	for _, n := range []int{len(name), len(value), 0} {
		out = binary.AppendUvarint(out, uint64(n))
	}
	out = append(append(out, name...), value...)
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, crc32.MakeTable(crc32.Castagnoli)))
}

// The keys of forgedState: the value of the bad one is forged.
const (
	forgedKeys = 40
	forgedBad  = 20
)

// forgedState creates the keys and a value, stored by a user, that contains complete
// records and commit ends, one for each version that may follow. The log lacks the header
// that shows that they are within a value, as after a crash of the machine, and the machine
// has been rebooted since.
func forgedState(t *testing.T, keys int) (dir string) {
	t.Helper()
	noise := rand.NewChaCha8([32]byte{1})
	pad := func(n int) []byte {
		out := make([]byte, n)
		_, _ = noise.Read(out) // never fails
		return out
	}
	var forged []byte
	for version := range uint64(2 * forgedKeys) {
		forged = append(forged, record(1<<6, "forged", version, []byte("of nobody"))...)
		forged = append(forged, record(1<<7, "!badger!txn", version, fmt.Append(nil, version))...)
	}
	kept := t.TempDir()
	dir = filepath.Join(t.TempDir(), "killed")
	kv := open(t, kept)
	for i := range keys {
		value := pad(100)
		if i == forgedBad {
			value = bytes.Join([][]byte{pad(6000), forged, pad(6000)}, nil)
		}
		err := kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set(fmt.Appendf(nil, "key%06d", i), value) })
		if err != nil {
			t.Fatal(err)
		}
	}
	copyState(t, kept, dir)
	if err := kv.Close(); err != nil {
		t.Fatal(err)
	}
	witness, log := filepath.Join(dir, "WITNESS"), first(t, dir, "*.mem")
	page, err := os.ReadFile(witness)
	if err == nil {
		err = os.WriteFile(witness, badgerkv.Reboot(page), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := readSparse(t, log)
	begin := bytes.Index(f.data, fmt.Appendf(nil, "key%06d", forgedBad))
	const endSize = 11 + 8 + 2 + 4 // of the end of a commit: key, version, the version in digits, checksum
	begin = bytes.LastIndex(f.data[:begin], []byte("!badger!txn")) + endSize
	clear(f.data[begin : begin+4096])
	if keys == forgedBad+1 {
		clear(f.data[bytes.LastIndex(f.data, forged)+len(forged):])
	}
	f.write(t, log)
	return dir
}

// TestForgedInAValue checks records that a user has forged within a value: they must
// neither make Open fail nor appear after a repair.
func TestForgedInAValue(t *testing.T) {
	for _, c := range []struct {
		name    string
		keys    int
		lost    string // a file that is lost as well
		damaged bool
	}{
		{"at the end of a log", forgedBad + 1, "", false},
		{"at the end of a log, no manifest", forgedBad + 1, "MANIFEST", true},
		{"with commits behind them", forgedKeys, "", true},
		{"with commits behind them, no witness", forgedKeys, "WITNESS", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := badgerkv.Options{Dir: forgedState(t, c.keys)}
			if c.lost != "" {
				if err := os.Remove(filepath.Join(opts.Dir, c.lost)); err != nil {
					t.Fatal(err)
				}
			}
			if c.damaged {
				_, refused := badgerkv.Open(t.Context(), opts)
				if _, err := badgerkv.Salvage(t.Context(), opts, refused, nil); err != nil || !errors.Is(refused, metadata.ErrCorrupt) {
					t.Fatalf("Open = %v, Salvage = %v", refused, err)
				}
			}
			hasNoForged(t, opts, c.keys)
		})
	}
}

// hasNoForged checks all keys but the bad one.
func hasNoForged(t *testing.T, opts badgerkv.Options, keys int) {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), opts)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	err = kv.View(t.Context(), func(tx metadata.KVTxn) error {
		if value, none := tx.Get([]byte("forged")); !errors.Is(none, metadata.ErrNoKey) {
			t.Errorf("the forged record is %q, %v", value, none)
		}
		for i := range keys {
			if _, none := tx.Get(fmt.Appendf(nil, "key%06d", i)); (none == nil) != (i != forgedBad) {
				t.Errorf("key %d: %v", i, none)
			}
		}
		return nil
	})
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Error(err)
	}
}
