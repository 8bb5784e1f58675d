package tests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestForeignHostTierIsRefused combines the host tier of a dead daemon with records of another
// one, whose inode numbers restart: no user may see the tier's bytes under them, and with its
// own records the tier is complete again.
func TestForeignHostTierIsRefused(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	want := kit.Bytes(3, 0, 70_001)
	if err := os.WriteFile(m.Path("host", "secret"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Kill()
	other := filepath.Join(filepath.Dir(m.StateDir), "other-state")
	out, err := m.Run("mount", "--state-dir", other, "--runtime-dir", m.RuntimeDir, "--device", "host,size=64MiB", m.Dir)
	if err == nil {
		t.Fatalf("the tier was adopted with other records: %s", out)
	}
	if said := err.Error(); strings.Contains(said, "\n") || !strings.Contains(said, "other records") || !strings.Contains(said, "umount ") {
		t.Errorf("the refusal does not name cause and way out in one line: %q", said)
	}
	if left, err := os.ReadDir(m.Dir); err != nil || len(left) > 0 {
		t.Errorf("mounted all the same: %v, %v", left, err)
	}
	m.Start()
	if got, err := os.ReadFile(m.Path("host", "secret")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("with its own records: %d bytes, %v", len(got), err)
	}
}
