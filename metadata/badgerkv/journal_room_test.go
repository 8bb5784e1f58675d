package badgerkv_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestJournalWithoutRoom opens stores whose journals are on a full disk: a new one is not used, and of one
// that lacks blocks what it has is written. Each change is in Badger at once then.
func TestJournalWithoutRoom(t *testing.T) {
	onDisk(t, func(t *testing.T, disk string) {
		used := journaled(t)
		useUp(t, filepath.Join(disk, "filler"))
		sparse := filepath.Join(disk, "sparse")
		if out, err := exec.Command("cp", "--sparse=always", used+".journal", sparse).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for name, c := range map[string]struct{ dir, journal string }{
			"new":    {filepath.Join(t.TempDir(), "kv"), filepath.Join(disk, "new")},
			"sparse": {used, sparse},
		} {
			t.Run(name, func(t *testing.T) { checkWithoutRoom(t, c.dir, c.journal) })
		}
	})
}

// useUp leaves less of a disk than a journal needs.
func useUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(diskSize)
	for err = unix.ENOSPC; errors.Is(err, unix.ENOSPC); size -= 4 << 20 {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	err = errors.Join(err, f.Truncate(size))
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func checkWithoutRoom(t *testing.T, dir, journal string) {
	f, err := os.OpenFile(journal, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is mapped
	core, logs := observer.New(zap.WarnLevel)
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Journal: f, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	before := keysOf(t, kv)
	if logs.Len() != 1 {
		t.Errorf("logged: %v", logs.All())
	}
	if err = kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("z"), []byte("1")) }); err != nil {
		t.Error(err)
	}
	to := filepath.Join(t.TempDir(), "copy")
	if err = os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	want := before[:len(before)-1] + " z]"
	if before == "[]" {
		want = "[z]"
	}
	next := open(t, to)
	if got := keysOf(t, next); got != want {
		t.Errorf("without the journal there are %s, want %s", got, want)
	}
	if err = errors.Join(next.Close(), kv.Close()); err != nil {
		t.Error(err)
	}
}
