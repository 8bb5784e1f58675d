package daemon

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// makeState writes records of a dead daemon: on sim0 a file with two names
// and content, an empty file and a directory.
func makeState(t *testing.T) place.Paths {
	t.Helper()
	p := place.Paths{State: t.TempDir()}
	ctx := t.Context()
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: p.Metadata()})
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := meta.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir, err1 := meta.Create(ctx, root.Ino, "dir", metadata.Node{Mode: metadata.TypeDir | 0o755})
	file, err2 := meta.Create(ctx, dir.Ino, "file", metadata.Node{Mode: metadata.TypeRegular | 0o644})
	_, err3 := meta.Create(ctx, root.Ino, "empty", metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	_, err1 = meta.Update(ctx, file.Ino, func(i *metadata.Inode) error {
		i.Size, i.Epoch = 4096, 7
		return nil
	})
	_, err2 = meta.Link(ctx, file.Ino, root.Ino, "second")
	if err := errors.Join(err1, err2, meta.Close()); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheckStateListsAndRemovesLostObjects(t *testing.T) {
	p := makeState(t)
	report, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Lost) != 1 || report.Lost[0].Size != 4096 || report.Lost[0].Device != "sim0" || len(report.Problems) != 0 || report.Removed != 0 {
		t.Fatalf("%+v", report)
	}
	if path := report.Lost[0].Path; path != "sim0/dir/file" {
		t.Errorf("path %q", path)
	}
	report, err = CheckState(t.Context(), p.State, adminapi.FsckRequest{RemoveLost: true})
	if err != nil || report.Removed != 1 || !report.Lost[0].Removed {
		t.Fatalf("%+v, %v", report, err)
	}
	after, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{})
	if err != nil || len(after.Lost) != 0 || len(after.Problems) != 0 || after.Checked != report.Checked-1 {
		t.Errorf("%+v, %v", after, err)
	}
}

func TestCheckStateRefusals(t *testing.T) {
	empty := t.TempDir()
	locked := makeState(t)
	l, err := place.Acquire(locked.StateLock(), place.Holder{PID: 77, MountPoint: "/mnt/hmc"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	corrupt := makeState(t)
	if err := os.WriteFile(corrupt.Metadata()+"/MANIFEST", []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	unreadable := makeState(t)
	if err := os.Mkdir(unreadable.Metadata()+"/00099.mem", 0o700); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{
		empty:            "has no records",
		locked.State:     "is in use by process 77; check the running mount instead: hmcfs fsck /mnt/hmc",
		corrupt.State:    "can't be read",
		unreadable.State: "is a directory; remove the cause",
	}
	if os.Geteuid() == 0 {
		foreign := makeState(t)
		if err := os.Chown(foreign.State, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		dirs[foreign.State] = "belongs to user 12345; run this as that user"
	}
	for dir, want := range dirs {
		_, err := CheckState(context.Background(), dir, adminapi.FsckRequest{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A repair that was killed before its last step is completed by the next check.
func TestCheckStateFinishesARepair(t *testing.T) {
	p := makeState(t)
	if err := os.Rename(p.Metadata(), p.Metadata()+".mended"); err != nil {
		t.Fatal(err)
	}
	report, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{})
	if err != nil || len(report.Lost) != 1 || len(report.Problems) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestCheckStateMendsFirstRecords has records that are valid for Badger, but whose first
// one is invalid: a check refuses them, and a repair recovers them.
func TestCheckStateMendsFirstRecords(t *testing.T) {
	p := makeState(t)
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: p.Metadata()})
	if err != nil {
		t.Fatal(err)
	}
	err = kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("S"), []byte("\x01\x02senseless")) })
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err = CheckState(t.Context(), p.State, adminapi.FsckRequest{}); err == nil || !strings.Contains(err.Error(), "hmcfs fsck --repair") {
		t.Fatalf("a look: %v", err)
	}
	report, err := CheckState(t.Context(), p.State, adminapi.FsckRequest{Repair: true})
	if err != nil || report.Repaired != len(report.Problems) || report.Repaired == 0 {
		t.Fatalf("a repair: %+v, %v", report, err)
	}
	report, err = CheckState(t.Context(), p.State, adminapi.FsckRequest{})
	if err != nil || len(report.Problems) != 0 || len(report.Lost) != 1 || report.Lost[0].Path != "sim0/dir/file" {
		t.Errorf("after that: %+v, %v", report, err)
	}
}
