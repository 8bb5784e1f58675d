package badgerkv_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// The second half of a journal has the commits that follow the first layer.
const secondHalf = badgerkv.JournalHead + badgerkv.JournalHalf

// bigJournal returns a journal with changes of some hundred bytes.
func bigJournal(t *testing.T) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kv")
	kv := openJournaled(t, dir)
	kv.FlushAfter(time.Hour, time.Hour)
	err := errors.Join(kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("first"), kit.Bytes(1, 0, 100)) }), kv.Flush())
	for n := range uint64(6) {
		err = errors.Join(err, kv.Update(t.Context(), func(tx metadata.KVTxn) error {
			return errors.Join(tx.Set([]byte{'k', byte(n)}, kit.Bytes(n, 0, 60+int(n))), tx.Delete([]byte{'k', byte(n - 2)}))
		}))
	}
	data, rerr := os.ReadFile(dir + ".journal")
	if err = errors.Join(err, rerr, kv.Close()); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDamagedJournal flips each bit of a journal: it is damaged then, or has the very same commits. No commit is different, or missing
// without an error.
func TestDamagedJournal(t *testing.T) {
	data := bigJournal(t)
	want, err := badgerkv.CommitsOf(data)
	if err != nil || len(want) != 6 {
		t.Fatalf("%d commits: %v", len(want), err)
	}
	end := secondHalf + len(bytes.TrimRight(data[secondHalf:], "\x00"))
	found := 0
	flip := func(at int) {
		refused := 0
		for bit := range 8 {
			data[at] ^= 1 << bit
			got, err := badgerkv.CommitsOf(data)
			switch {
			case err != nil && len(got) >= len(want):
				t.Errorf("bit %d of byte %d: %v, after all commits", bit, at, err)
			case err != nil:
				refused++
			case !slices.Equal(got, want):
				t.Errorf("bit %d of byte %d is not found: %d of %d commits, or others", bit, at, len(got), len(want))
			}
			data[at] ^= 1 << bit
		}
		if found += refused; at >= secondHalf && refused < 8 {
			t.Errorf("%d flipped bits of byte %d are found", refused, at)
		}
	}
	for at := range badgerkv.JournalHead {
		flip(at)
	}
	if head := found; head != 8*(44+6*8) {
		t.Errorf("%d flipped bits of the page of numbers are found", head)
	}
	for at := secondHalf; at < end; at++ {
		flip(at)
	}
}

// FuzzJournal reads commits that have any bytes, without a checksum and with one that is right.
func FuzzJournal(f *testing.F) {
	f.Add([]byte("\x05\x00\x00\x00\x00\x00\x00\x00\x01\x01\x02ab"))
	f.Add([]byte("\x04\x00\x00\x00\x00\x00\x00\x00\x01\x01\x01a"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, half []byte) {
		for _, signed := range []bool{false, true} {
			changes, size, err := badgerkv.ReadCommit(half, signed)
			if err == nil && (size == 0 || size > uint64(len(half)) || changes > len(half)) || err != nil && changes > 0 {
				t.Errorf("%d changes in %d of %d bytes: %v", changes, size, len(half), err)
			}
		}
	})
}

// TestDamagedJournalRefused opens stores with damaged journals. Open refuses them, and leaves records and journal as they are; when it
// mends the journal, the changes before the damage are there.
func TestDamagedJournalRefused(t *testing.T) {
	dir := journaled(t)
	data, err := os.ReadFile(dir + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	half := data[secondHalf:]
	second := secondHalf + 8 + int(binary.LittleEndian.Uint32(half))
	third := second + 8 + int(binary.LittleEndian.Uint32(data[second:]))
	for what, c := range map[string]struct {
		spoil func(data []byte) []byte
		want  string // the values of a and b
	}{
		"first commit":      {func(d []byte) []byte { d[second-1] ^= 8; return d }, "oldold"},
		"second commit":     {func(d []byte) []byte { d[third-1] ^= 8; return d }, "newold"},
		"length":            {func(d []byte) []byte { d[second+3] ^= 1; return d }, "newold"},
		"moved commit":      {func(d []byte) []byte { copy(d[second:], d[secondHalf:second]); return d }, "newold"},
		"missing commit":    {func(d []byte) []byte { copy(d[secondHalf:], d[second:third]); return d }, "oldold"},
		"version":           {func(d []byte) []byte { d[len("hmcfs journal ")] ^= 1; return d }, "oldold"},
		"stamp":             {func(d []byte) []byte { d[20] ^= 1; return d }, "oldold"},
		"version of Badger": {func(d []byte) []byte { d[67] ^= 1; return d }, "oldold"},
		"bytes of a half":   {func(d []byte) []byte { d[202] ^= 1; return d }, "oldold"},
		"cut short":         {func(d []byte) []byte { return d[:secondHalf] }, "oldold"},
		"another file":      {func([]byte) []byte { return []byte("other") }, "oldold"},
	} {
		t.Run(what, func(t *testing.T) {
			at := copyOf(t, dir)
			spoiled := c.spoil(bytes.Clone(data))
			if err := os.WriteFile(at+".journal", spoiled, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := journalOf(at)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() //nolint:errcheck // it is mapped
			for range 2 {
				checkRefused(t, at, f, spoiled)
			}
			checkMended(t, badgerkv.Options{Dir: at, Journal: f, MendJournal: true}, c.want)
			if err = openJournaled(t, at).Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkRefused opens a store whose journal is damaged, and stays as it is.
func checkRefused(t *testing.T, dir string, f *os.File, spoiled []byte) {
	t.Helper()
	_, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Journal: f})
	if _, ok := errors.AsType[*badgerkv.JournalError](err); !ok || !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), f.Name()) {
		t.Fatalf("open: %v", err)
	}
	if now, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(now, spoiled) {
		t.Fatalf("the refused journal has changed: %v", err)
	}
}

// checkMended opens a store that mends its journal, and has values of "a" and "b" then.
func checkMended(t *testing.T, opts badgerkv.Options, want string) {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if !kv.Cut() {
		t.Error("memory without a record is taken for memory of nothing")
	}
	err = kv.View(t.Context(), func(tx metadata.KVTxn) error {
		a, errA := tx.Get([]byte("a"))
		b, errB := tx.Get([]byte("b"))
		if got := string(a) + string(b); got != want {
			t.Errorf("a and b are %q, want %q", got, want)
		}
		return errors.Join(errA, errB)
	})
	if err = errors.Join(err, kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("a"), []byte("later")) }), kv.Close()); err != nil {
		t.Error(err)
	}
}

// TestDamagedJournalOfOthers has a journal, damaged where it says whose it is, beside records that are new: it keeps nobody from beginning.
func TestDamagedJournalOfOthers(t *testing.T) {
	for _, size := range []int{100, badgerkv.JournalHead + 2*badgerkv.JournalHalf} {
		dir := journaled(t)
		data, err := os.ReadFile(dir + ".journal")
		if err != nil {
			t.Fatal(err)
		}
		data[20] ^= 1
		if err = errors.Join(os.WriteFile(dir+".journal", data[:size], 0o600), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
		kv := openJournaled(t, dir)
		if got := keysOf(t, kv); got != "[]" {
			t.Errorf("new records have %s", got)
		}
		if err = kv.Close(); err != nil {
			t.Error(err)
		}
	}
}
