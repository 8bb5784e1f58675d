package tests

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestUmountLeavesNothing ends a mount in every clean way.
func TestUmountLeavesNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*testing.T, *mnt.M)
	}{
		{"umount", func(_ *testing.T, m *mnt.M) { m.Umount() }},
		{"lazy", func(_ *testing.T, m *mnt.M) { m.Umount("--lazy") }},
		{"SIGTERM", func(t *testing.T, m *mnt.M) { t.Helper(); signalAndWait(t, m, unix.SIGTERM) }},
		{"SIGINT", func(t *testing.T, m *mnt.M) { t.Helper(); signalAndWait(t, m, unix.SIGINT) }},
		{"umount-from-outside", func(t *testing.T, m *mnt.M) {
			t.Helper()
			pid := m.PID()
			if err := unix.Unmount(m.Dir, 0); err != nil {
				t.Fatal(err)
			}
			waitForEnd(t, pid)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kit.Check(t)
			m := mnt.Mount(t, mnt.Options{})
			for _, dev := range []string{"host", "sim0"} {
				writeSome(t, m.Path(dev))
			}
			tc.end(t, m)
			if left := mnt.MountedBelow(filepath.Dir(m.Dir)); len(left) > 0 {
				t.Errorf("still mounted: %q", left)
			}
			if left, err := os.ReadDir(m.RuntimeDir); len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left in the runtime directory: %v, %v", left, err)
			}
			m.Start()
			for _, dev := range []string{"host", "sim0", "keys"} {
				if left, err := os.ReadDir(m.Path(dev)); len(left) > 0 || err != nil {
					t.Errorf("%s has %v after the next mount, %v", dev, left, err)
				}
			}
			checkFsck(t, m, nil)
			if used := m.Device("host").Used; used != 0 {
				t.Errorf("%d bytes of host memory are used", used)
			}
		})
	}
}

// writeSome creates a small tree in a directory of the mount.
func writeSome(t *testing.T, dir string) {
	t.Helper()
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o2750); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(sub, "file")
	err := errors.Join(
		os.WriteFile(file, kit.Bytes(1, 0, 300_001), 0o640),
		os.Chmod(file, 0o604),
		os.Link(file, filepath.Join(dir, "second-name")),
		os.Symlink("sub/file", filepath.Join(dir, "symlink")),
		unix.Setxattr(file, "user.note", []byte("kept"), 0),
		unix.Setxattr(file, "user.hmc.key", []byte("key-of-"+filepath.Base(dir)), 0),
		os.Chtimes(file, time.Unix(1e9, 1), time.Unix(1e9, 987_654_321)),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeep unmounts with --keep: at the next mount the host tier is unchanged, and files on a
// device are reported as lost.
func TestKeep(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	for _, dev := range []string{"host", "sim0"} {
		writeSome(t, m.Path(dev))
	}
	m.Umount("--keep")
	if left := mnt.MountedBelow(filepath.Dir(m.Dir)); len(left) != 1 {
		t.Errorf("want the host tier alone, mounted are %q", left)
	}
	m.Start()
	checkSome(t, m.Path("host"))
	wholeOrLost(t, m.Path("host", "sub", "file"), kit.Bytes(1, 0, 300_001))
	wholeOrLost(t, m.Path("sim0", "sub", "file"), nil)
	for _, dev := range []string{"host", "sim0"} {
		if err := sameFile(m.Path(dev, "symlink"), m.Path("keys", "key-of-"+dev)); err != nil {
			t.Error(err)
		}
	}
	m.Umount()
	if left := mnt.MountedBelow(filepath.Dir(m.Dir)); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
}

// checkSome checks the tree of writeSome, except for the bytes.
func checkSome(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, "sub", "file")
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode != unix.S_IFREG|0o604 || st.Nlink != 2 || st.Size != 300_001 || st.Mtim.Nano() != 1e18+987_654_321 {
		t.Errorf("mode %o, %d links, %d bytes, changed at %d", st.Mode, st.Nlink, st.Size, st.Mtim.Nano())
	}
	if err := sameFile(file, filepath.Join(dir, "second-name")); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "symlink")); to != "sub/file" {
		t.Errorf("the symbolic link leads to %q, %v", to, err)
	}
	if note, err := getXattr(file, "user.note"); note != "kept" {
		t.Errorf("the attribute is %q, %v", note, err)
	}
}

// signalAndWait sends a signal to the daemon and waits for its end.
func signalAndWait(t *testing.T, m *mnt.M, s unix.Signal) {
	t.Helper()
	pid := m.PID()
	if err := unix.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
	waitForEnd(t, pid)
}

// waitForEnd waits until the process does not exist.
func waitForEnd(t *testing.T, pid int) {
	t.Helper()
	kit.Eventually(t, 30*time.Second, func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
}
