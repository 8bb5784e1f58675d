package tests

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// fillDisk fills the disk of a directory to its last byte.
func fillDisk(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(kit.Bytes(3, 0, size)); errors.Is(err, unix.ENOSPC) {
			size /= 4
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return filler
}

// nameChanges returns the changes that need space for records.
func nameChanges(m *mnt.M) map[string]func() error {
	file := m.Path("sim0", "file")
	return map[string]func() error{
		"create":   func() error { return os.WriteFile(m.Path("sim0", "new"), nil, 0o600) },
		"mkdir":    func() error { return os.Mkdir(m.Path("host", "new"), 0o700) },
		"link":     func() error { return os.Link(file, m.Path("sim0", "link")) },
		"symlink":  func() error { return os.Symlink("x", m.Path("sim0", "symlink")) },
		"rename":   func() error { return os.Rename(file, m.Path("sim0", "other")) },
		"setxattr": func() error { return unix.Setxattr(file, "user.x", []byte("v"), 0) },
		"key":      func() error { return unix.Setxattr(file, "user.hmc.key", []byte("k"), 0) },
		"chmod":    func() error { return os.Chmod(file, 0o604) },
	}
}

// TestFullStateDisk fills the disk of the state directory to its last byte: changes of names
// and attributes fail with ENOSPC, while data, reads and removals continue to work, as do the
// changes when there is space again. The unmount ends in both cases.
func TestFullStateDisk(t *testing.T) {
	kit.Check(t)
	disk := mnt.Tmpfs(t, "160m")
	m := mnt.Prepare(t, mnt.Options{})
	m.StateDir = filepath.Join(disk, "state")
	m.Start()
	data := kit.Bytes(1, 0, 100_000)
	for _, path := range []string{m.Path("sim0", "file"), m.Path("sim0", "doomed"), m.Path("host", "file"), m.Path("host", "doomed")} {
		must(t, os.WriteFile(path, data, 0o600))
	}
	filler := fillDisk(t, disk)
	for what, change := range nameChanges(m) {
		if err := change(); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s = %v, want ENOSPC", what, err)
		}
	}
	for _, dev := range []string{"sim0", "host"} {
		f, err := os.OpenFile(m.Path(dev, "file"), os.O_RDWR|os.O_APPEND, 0)
		must(t, err)
		_, err = f.Write(data)
		must(t, errors.Join(err, f.Sync(), f.Close()))
		got, err := os.ReadFile(m.Path(dev, "file"))
		if err != nil || !bytes.Equal(got, append(bytes.Clone(data), data...)) {
			t.Errorf("%s: %d bytes are read, %v", dev, len(got), err)
		}
		must(t, os.Remove(m.Path(dev, "doomed")))
	}
	if log := m.Log(); !strings.Contains(log, m.StateDir) || !strings.Contains(log, "free some space there") {
		t.Errorf("the log names no way out:\n%s", log)
	}
	must(t, os.Remove(filler))
	for what, change := range nameChanges(m) {
		if err := change(); err != nil && !errors.Is(err, unix.ENOENT) { // some run after the rename
			t.Errorf("with space again: %s = %v", what, err)
		}
	}
	fillDisk(t, disk)
	m.Umount()
}

// TestStateDirGone removes the state directory of a mount: changes fail, reads continue, the
// log names the directory, and the unmount ends. With --keep it reports what is lost.
func TestStateDirGone(t *testing.T) {
	for name, away := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
		"covered": func(dir string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m") },
	} {
		for _, keep := range []bool{false, true} {
			if keep {
				name += "-keep"
			}
			t.Run(name, func(t *testing.T) {
				kit.Check(t)
				withoutStateDir(t, away, keep)
			})
		}
	}
}

func withoutStateDir(t *testing.T, away func(dir string) error, keep bool) {
	t.Helper()
	m := mnt.Mount(t, mnt.Options{})
	data := kit.Bytes(2, 0, 5000)
	must(t, os.WriteFile(m.Path("sim0", "file"), data, 0o600))
	must(t, away(m.StateDir))
	defer func() { _ = unix.Unmount(m.StateDir, unix.MNT_DETACH) }() // if it was covered
	if err := os.Mkdir(m.Path("sim0", "new"), 0o700); !errors.Is(err, unix.EIO) {
		t.Errorf("mkdir = %v, want EIO", err)
	}
	if log := m.Log(); !strings.Contains(log, m.StateDir+"/metadata was removed or replaced") {
		t.Errorf("the log does not name the directory:\n%s", log)
	}
	if got, err := os.ReadFile(m.Path("sim0", "file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes are read, %v", len(got), err)
	}
	args := []string{"umount", m.Dir}
	if keep {
		args = []string{"umount", "--keep", m.Dir}
	}
	code, words := startProgram(t, "hmcfs", args...).ends(t)
	if keep != (code != 0) || keep && !strings.Contains(words, m.StateDir) {
		t.Errorf("umount ends with %d and says %q", code, words)
	}
	if left := mnt.MountedBelow(m.Dir); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
}

// TestStaleLock mounts with lock files that contain the ID of a live process unrelated to
// hmcfs: only the locks count, not the content of the files.
func TestStaleLock(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	must(t, os.WriteFile(m.Path("sim0", "file"), nil, 0o600))
	m.Kill()
	must(t, os.WriteFile(filepath.Join(m.StateDir, "lock"), []byte(`{"pid":1,"mount_point":"/"}`), 0o600))
	must(t, os.WriteFile(filepath.Join(m.StateDir, "metadata", "LOCK"), []byte("1\n"), 0o600))
	m.Start()
	if _, err := os.Stat(m.Path("sim0", "file")); err != nil {
		t.Error(err)
	}
	m.Umount()
}

// TestReadOnlyStateDir checks that the mount is refused with an error that names the
// directory.
func TestReadOnlyStateDir(t *testing.T) {
	kit.Check(t)
	disk := mnt.Tmpfs(t, "8m")
	m := mnt.Prepare(t, mnt.Options{})
	must(t, os.MkdirAll(m.Dir, 0o700))
	must(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	state := filepath.Join(disk, "state")
	code, words := startProgram(t, "hmcfs", "mount", "--device", "host,size=1MiB", "--state-dir", state, "--runtime-dir", m.RuntimeDir, m.Dir).ends(t)
	if code == 0 || !strings.Contains(words, state) || !strings.Contains(words, "read-only file system") {
		t.Errorf("mount ends with %d and says %q", code, words)
	}
	must(t, unix.Mount("", disk, "", unix.MS_REMOUNT, ""))
}
