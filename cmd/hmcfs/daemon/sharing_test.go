package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestShownFile accepts descriptors of the mount's files only.
func TestShownFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if serr := unix.Stat(path, &st); serr != nil {
		t.Fatal(serr)
	}
	dev := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	d := &Daemon{dev: dev}
	if ino, err := d.shownFile(f); err != nil || uint64(ino) != st.Ino {
		t.Errorf("inode %d, %v; want %d", ino, err, st.Ino)
	}
	d.opts.Places.MountPoint, d.dev = "/mnt/hmc", "0:4242"
	if _, err := d.shownFile(f); err == nil {
		t.Error("a file of another file system was taken")
	}
}
