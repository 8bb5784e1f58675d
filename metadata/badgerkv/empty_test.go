package badgerkv_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestEmptyLog opens a store with an empty log, as a crash leaves it: the newest if the
// process is killed between creating the file and giving it a size, the oldest if it is
// killed between truncating the file, whose content is in a table, and removing it. A value
// log is created like the newest.
func TestEmptyLog(t *testing.T) {
	for _, name := range []string{"00000.mem", "00077.mem", "123456.mem", "000002.vlog"} {
		t.Run(name, func(t *testing.T) {
			dir := copyOpen(t)
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				kv := open(t, dir)
				err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
					_, err := tx.Get([]byte("k"))
					return err
				})
				if err = errors.Join(err, kv.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestEmptyLogAmongOthers refuses a store that contains a log twice, with an empty one
// between them, and changes nothing.
func TestEmptyLogAmongOthers(t *testing.T) {
	dir := copyOpen(t)
	data, err := os.ReadFile(first(t, dir, "*.mem"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"99998.mem": nil, "123456.mem": data} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := sizes(t, dir)
	if _, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir}); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("Open = %v, want ErrCorrupt", err)
	}
	if diff := cmp.Diff(before, sizes(t, dir)); diff != "" {
		t.Errorf("a refusal changed the files (-before +after):\n%s", diff)
	}
}

// copyOpen returns a copy of an open store, as a crash leaves it.
func copyOpen(t *testing.T) string {
	t.Helper()
	dir, killed := t.TempDir(), filepath.Join(t.TempDir(), "killed")
	kv := open(t, dir)
	defer func() {
		if err := kv.Close(); err != nil {
			t.Error(err)
		}
	}()
	err := kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("k"), []byte("v")) })
	if err = errors.Join(err, os.CopyFS(killed, os.DirFS(dir))); err != nil {
		t.Fatal(err)
	}
	return killed
}

// sizes returns the sizes of the files of a directory.
func sizes(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && d.Name() != "LOCK" { // contains the ID of the process that has it open
			out[path] = st.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
