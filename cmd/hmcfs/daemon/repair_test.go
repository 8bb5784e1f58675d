package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// cut removes the first record of a kind whose value holds a text.
func cut(ctx context.Context, kv metadata.KV, kind byte, text string) error {
	return kv.Update(ctx, func(tx metadata.KVTxn) error {
		var key []byte
		err := tx.Scan([]byte{kind}, nil, func(k, value []byte) (bool, error) {
			if strings.Contains(string(value), text) {
				key = slices.Clone(k)
			}
			return key == nil, nil
		})
		if err == nil && key == nil {
			err = fmt.Errorf("no %c record with %q", kind, text)
		}
		return errors.Join(err, tx.Delete(key))
	})
}

// damage removes the entries of a file and of an empty one.
func damage(t *testing.T, p place.Paths) {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: p.Metadata()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cut(t.Context(), kv, 'd', "empty"), cut(t.Context(), kv, 'i', "file"), kv.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestCheckStateRepairs(t *testing.T) {
	p := makeState(t)
	damage(t, p)
	before, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{})
	if err != nil || len(before.Problems) < 3 || before.Repaired != 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	report, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) < len(before.Problems) || report.Repaired != len(report.Problems) {
		t.Errorf("%d of %d problems are repaired, %d were there", report.Repaired, len(report.Problems), len(before.Problems))
	}
	back := false
	for _, row := range report.Problems {
		back = back || row.Done == "it is put back as sim0/empty"
		if !row.Repaired || row.Done == "" || row.Fault != "" {
			t.Errorf("%+v", row)
		}
	}
	if !back {
		t.Errorf("nobody is told where the file without a name went: %+v", report.Problems)
	}
	after, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{Repair: true})
	if err != nil || len(after.Problems) != 0 || after.Checked != report.Checked {
		t.Errorf("%+v, %v", after, err)
	}
}

// told is a kernel that records its notifications.
type told struct{ entries, inodes []string }

func (k *told) EntryChanged(parent metadata.Ino, name string) {
	k.entries = append(k.entries, fmt.Sprintf("%d/%s", parent, name))
}

func (k *told) InodeChanged(ino metadata.Ino) { k.inodes = append(k.inodes, fmt.Sprint(ino)) }

func TestRepairTellsTheKernel(t *testing.T) {
	ctx := t.Context()
	kv := memkv.New()
	meta, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := meta.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := meta.Create(ctx, root.Ino, "a file", metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		t.Fatal(err)
	}
	if err = cut(ctx, kv, 'd', "a file"); err != nil {
		t.Fatal(err)
	}
	k := &told{}
	c := checker{meta: meta, kernel: k}
	report, err := c.check(ctx, adminapi.FsckRequest{Repair: true})
	if err != nil || report.Repaired == 0 || report.Repaired != len(report.Problems) {
		t.Fatalf("%+v, %v", report, err)
	}
	if want := fmt.Sprintf("%d/a file", root.Ino); !slices.Contains(k.entries, want) {
		t.Errorf("told of the entries %q, not of %q", k.entries, want)
	}
	for _, want := range []metadata.Ino{root.Ino, file.Ino} {
		if !slices.Contains(k.inodes, fmt.Sprint(want)) {
			t.Errorf("told of the inodes %q, not of %d", k.inodes, want)
		}
	}
}

func TestRepairStopsWhenInterrupted(t *testing.T) {
	p := makeState(t)
	damage(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report, err := CheckState(ctx, p.State, adminapi.FsckRequest{Repair: true}); !errors.Is(err, context.Canceled) || report.Repaired != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestCheckStateBringsBack removes the manifest, which holds no record: the records are
// refused, and a repair recovers all of them.
func TestCheckStateBringsBack(t *testing.T) {
	p := makeState(t)
	before, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err = os.Remove(filepath.Join(p.Metadata(), "MANIFEST")); err != nil {
		t.Fatal(err)
	}
	if _, err = CheckState(t.Context(), p.State, adminapi.FsckRequest{}); err == nil || !strings.Contains(err.Error(), "MANIFEST is missing") || !strings.Contains(err.Error(), "--repair") {
		t.Errorf("without a manifest: %v", err)
	}
	after, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{Repair: true})
	if err != nil || after.Checked != before.Checked || len(after.Lost) != len(before.Lost) {
		t.Fatalf("%+v, %v, want %+v", after, err, before)
	}
	aside := p.Metadata() + ".damaged-1"
	if len(after.Problems) != 1 || after.Repaired != 1 || !strings.Contains(after.Problems[0].Done, aside) {
		t.Errorf("%+v", after.Problems)
	}
	if tables, err := filepath.Glob(filepath.Join(aside, "*.sst")); err != nil || len(tables) == 0 {
		t.Errorf("the damaged records are not kept: %v, %v", tables, err)
	}
	if again, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{}); err != nil || len(again.Problems) != 0 {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestDamagedJournal has a file that is only in the journal of a killed daemon, and damage behind it: the records are refused with the
// file of the journal and the remedy, and a repair has that file, and says what is gone.
func TestDamagedJournal(t *testing.T) {
	killed, root, journal := killedWithJournal(t)
	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.LastIndex(data, []byte("late"))] ^= 1
	if err = os.WriteFile(journal, data, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := badgerkv.Options{Dir: killed.Metadata(), Journal: openJournal(t, journal)}
	_, _, err = openState(t.Context(), opts, false)
	mounting := &Daemon{opts: Options{Places: killed}}
	for _, fault := range []error{stateFault(killed.State, err), mounting.recordsFault(err)} {
		for _, part := range []string{journal, "checksum is wrong", "hmcfs fsck --repair --state-dir " + killed.State + " writes the changes before the damage"} {
			if !strings.Contains(fault.Error(), part) {
				t.Errorf("the error is %q, without %q", fault, part)
			}
		}
		if strings.Contains(fault.Error(), "good copy") {
			t.Errorf("a copy of the records does not help: %v", fault)
		}
	}
	meta, rows, err := openState(t.Context(), opts, true)
	if err != nil || len(rows) != 1 || !rows[0].Repaired || !strings.Contains(rows[0].Text, journal) || !strings.Contains(rows[0].Done, "gone") {
		t.Fatalf("%+v, %v", rows, err)
	}
	_, early := meta.Lookup(t.Context(), root, "early")
	if _, err = meta.Lookup(t.Context(), root, "late"); early != nil || !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("early: %v, late: %v", early, err)
	}
	if err = meta.Close(); err != nil {
		t.Error(err)
	}
}

// killedWithJournal returns the state of a killed daemon, and its journal, which has the files "early" and "late" of the directory
// root. A daemon that had time to write them is not that one: another tries it then.
func killedWithJournal(t *testing.T) (killed place.Paths, root metadata.Ino, journal string) {
	t.Helper()
	for range 100 {
		p := makeState(t)
		killed, journal = place.Paths{State: t.TempDir()}, filepath.Join(t.TempDir(), "journal")
		own := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		meta, err := openUnmounted(t.Context(), badgerkv.Options{Dir: p.Metadata(), Journal: own})
		if err != nil {
			t.Fatal(err)
		}
		if err = os.CopyFS(killed.Metadata(), os.DirFS(p.Metadata())); err != nil {
			t.Fatal(err)
		}
		devs, err := meta.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		root = devs[0].Ino
		for _, name := range []string{"early", "late"} {
			if _, err = meta.Create(t.Context(), root, name, metadata.Node{Mode: metadata.TypeRegular | 0o644}); err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(own.Name())
		if err = errors.Join(err, meta.Close(), os.WriteFile(journal, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		switch n, err := badgerkv.Unwritten(openJournal(t, journal)); {
		case err != nil:
			t.Fatal(err)
		case n >= 2: // what opening the records has changed comes first
			return killed, root, journal
		}
	}
	t.Fatal("no journal has both files")
	return killed, root, journal
}

// openJournal opens the file of a journal, for as long as the test lasts.
func openJournal(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
