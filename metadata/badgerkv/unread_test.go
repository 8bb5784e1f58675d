package badgerkv_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestUnreadableSector makes one sector of each file of a store unreadable: Open must
// refuse that as damage, report what can't be read and change nothing, and a repair must
// restore everything else.
func TestUnreadableSector(t *testing.T) {
	const inTable, inLog = 400, 200
	for _, c := range []struct {
		pattern string
		sector  int64
		// most is the maximum number of keys that are lost.
		most int
		gone string // how they are reported
	}{
		{"*.mem", 0, 60, " commits: 402–"},
		{"*.mem", 1, 60, " commits: 4"},
		{"*.sst", 1, 200, "table 000001.sst: 2 of 7 blocks"},
		{"WITNESS", 0, 0, ""},
	} {
		t.Run(fmt.Sprintf("%s sector %d", c.pattern, c.sector), func(t *testing.T) {
			dir, killed := t.TempDir(), filepath.Join(t.TempDir(), "killed")
			kv := open(t, dir)
			setKeys(t, kv, 0, inTable)
			if err := kv.Close(); err != nil {
				t.Fatal(err)
			}
			kv = open(t, dir)
			setKeys(t, kv, inTable, inTable+inLog)
			copyState(t, dir, killed)
			if err := kv.Close(); err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(first(t, killed, c.pattern))
			good := badgerkv.Options{Dir: killed}
			bad := good.BadSectors(name, 4096*c.sector, 4096*(c.sector+1))
			if c.most > 0 {
				mendUnread(t, bad, name, c.gone)
				bad = good // its files are new ones
			}
			lost := lostKeys(t, bad, inTable+inLog)
			if lost > c.most || (lost == 0) != (c.most == 0) {
				t.Errorf("%d keys are lost", lost)
			}
		})
	}
}

// lostKeys counts the missing ones of n keys, and checks the rest.
func lostKeys(t *testing.T, opts badgerkv.Options, n int) (lost int) {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	err = kv.View(t.Context(), func(tx metadata.KVTxn) error {
		for i := range n {
			value, none := tx.Get(fmt.Appendf(nil, "key%06d", i))
			switch {
			case errors.Is(none, metadata.ErrNoKey):
				lost++
			case none != nil || string(value) != valueOf(i):
				t.Errorf("key %d is %q, %v", i, value, none)
			}
		}
		return nil
	})
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Error(err)
	}
	return lost
}

// valueOf returns the value of a key; about forty fill a sector.
func valueOf(i int) string { return fmt.Sprintf("%d %0*d", i, 30+i%7, i*i) }

func setKeys(t *testing.T, kv *badgerkv.KV, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
			return tx.Set(fmt.Appendf(nil, "key%06d", i), []byte(valueOf(i)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// mendUnread checks that a store with an unreadable file is refused, and repairs it.
func mendUnread(t *testing.T, opts badgerkv.Options, file, gone string) {
	t.Helper()
	before := readState(t, opts.Dir)
	_, err := badgerkv.Open(t.Context(), opts)
	if !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), file+": 4.0 KiB can't be read: "+unix.EIO.Error()) {
		t.Fatalf("Open = %v", err)
	}
	for name, is := range readState(t, opts.Dir) {
		if name != "LOCK" && is.sum() != before[name].sum() {
			t.Errorf("%s has changed", name)
		}
	}
	got, err := badgerkv.Salvage(t.Context(), opts, err, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Gone) != 1 || !strings.Contains(got.Gone[0], gone) {
		t.Errorf("gone are %q, not %q", got.Gone, gone)
	}
}
