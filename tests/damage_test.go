package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

const damagedFiles = 120

// TestDamagedRecords kills a daemon and damages its records: the next mount is refused and
// changes nothing. fsck --repair recovers what can be read and names what is lost, and no file
// that is listed afterwards has bytes of another.
func TestDamagedRecords(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	for i := range damagedFiles {
		if i%(damagedFiles/4) == 0 {
			m.AwaitWritten() // damage loses all that was written at once
		}
		if err := os.WriteFile(m.Path("host", fmt.Sprint("f", i)), kit.Bytes(uint64(i), 0, 3000+i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.AwaitWritten()
	must(t, os.Mkdir(m.Path("host", "late"), 0o700))
	m.Kill()
	dir := filepath.Join(m.StateDir, "metadata")
	logs, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log: %v", err)
	}
	log := logs[0]
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(whole, "\x00"))
	flipped := bytes.Clone(whole)
	flipped[used/4] ^= 4
	restore := func(path string, data []byte) {
		t.Helper()
		must(t, os.WriteFile(path, data, 0o600))
	}
	manifest := filepath.Join(dir, "MANIFEST")
	list, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	refuseMount(t, m, dir, func() error { return os.Remove(log) })
	restore(log, whole)
	refuseMount(t, m, dir, func() error { return os.Remove(manifest) })
	restore(manifest, list)
	refuseMount(t, m, dir, func() error { return os.WriteFile(manifest, list[:3], 0o600) })
	restore(manifest, list)
	refuseMount(t, m, dir, func() error { return os.WriteFile(log, flipped, 0o600) })

	out, err := m.Run("fsck", "--repair", "--state-dir", m.StateDir)
	t.Logf("fsck --repair: %v\n%s", err, out)
	if !strings.Contains(out, "still in the journal") {
		t.Errorf("fsck --repair does not say that the last change is gone:\n%s", out)
	}
	if !strings.Contains(out, "gone: ") || !strings.Contains(out, "bad record") {
		t.Errorf("fsck --repair does not say what is gone:\n%s", out)
	}
	if _, err := os.Stat(dir + ".damaged-1"); err != nil {
		t.Errorf("the damaged records are not kept: %v", err)
	}
	m.Start()
	left := 0
	for i := range damagedFiles {
		data, err := os.ReadFile(m.Path("host", fmt.Sprint("f", i)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			t.Errorf("f%d: %v", i, err)
		case len(data) > 0 && kit.DiffAt(data, uint64(i), 0) >= 0:
			t.Errorf("f%d has foreign bytes", i)
		default:
			left++
		}
	}
	if left < damagedFiles/2 {
		t.Errorf("%d of %d files are left", left, damagedFiles)
	}
	if err := os.WriteFile(m.Path("host", "after"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(m.Path("host", "after")); err != nil || len(data) > 0 {
		t.Errorf("a new file has %d bytes, %v", len(data), err)
	}
}

// refuseMount damages the records, and checks that a mount is refused and does not modify
// them.
func refuseMount(t *testing.T, m *mnt.M, dir string, damage func() error) {
	t.Helper()
	if err := damage(); err != nil {
		t.Fatal(err)
	}
	before := bytesBelow(t, dir)
	out, err := m.Run("mount", "--state-dir", m.StateDir, "--runtime-dir", m.RuntimeDir, "--device", "host,size=64MiB", "--", m.Dir)
	text := fmt.Sprint(out, err)
	if err == nil || !strings.Contains(text, "damaged") || !strings.Contains(text, "fsck --repair") {
		t.Fatalf("a mount of damaged records: %v\n%s", err, out)
	}
	t.Logf("refused: %s", text)
	if !maps.Equal(before, bytesBelow(t, dir)) {
		t.Error("a refusal changed the records")
	}
}

// bytesBelow reads the files of a directory.
func bytesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}
