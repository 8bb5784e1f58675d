package tests

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// rootsLinks is the directory of the links by which root's mounts are found.
const rootsLinks = "/run/hmcfs"

// linkOf returns the link by which a mount is found.
func linkOf(t *testing.T, m *mnt.M) string {
	t.Helper()
	all, err := os.ReadDir(rootsLinks)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		link := filepath.Join(rootsLinks, e.Name())
		if to, err := os.Readlink(link); err == nil && to == m.RuntimeDir {
			return link
		}
	}
	t.Fatalf("no link in %s leads to %s", rootsLinks, m.RuntimeDir)
	return ""
}

// squat creates, owned by alice, the directory in which hmcfs looks for root's mounts if
// root's own has none, with an entry under the name of a mount. It returns the environment of
// a command that looks there.
func squat(t *testing.T, m *mnt.M, what func(place string) error) []string {
	t.Helper()
	tmp := mnt.TempDir(t)
	base := filepath.Join(tmp, "hmcfs-0")
	err := errors.Join(os.Mkdir(base, 0o755), what(filepath.Join(base, filepath.Base(linkOf(t, m)))), os.Lchown(base, alice, alice))
	if err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "TMPDIR="+tmp)
}

// within runs a command, which must end on its own.
func within(t *testing.T, cmd *exec.Cmd, env []string) (string, error) {
	t.Helper()
	cmd.Env = env
	stuck := time.AfterFunc(time.Minute, func() {
		t.Errorf("%q hangs", cmd.Args)
		_ = cmd.Process.Kill()
	})
	defer stuck.Stop()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSquattedLink lets another user redirect root's umount of a dead mount to a live one.
func TestSquattedLink(t *testing.T) {
	kit.Check(t)
	dead, living := mnt.Mount(t, mnt.Options{}), mnt.Mount(t, mnt.Options{})
	writeSome(t, living.Path("sim0"))
	env := squat(t, dead, func(place string) error {
		return errors.Join(os.Symlink(living.RuntimeDir, place), os.Lchown(place, alice, alice))
	})
	dead.Kill()
	if out, err := within(t, dead.Command("umount", "--force", dead.Dir), env); err != nil || !strings.Contains(out, "was dead") {
		t.Errorf("umount of the dead mount: %v\n%s", err, out)
	}
	if left := mnt.MountedBelow(dead.Dir); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
	checkSome(t, living.Path("sim0"))
}

// TestSquattedSocket lets another user listen, without answering, where root's commands look,
// next to a lock whose open would block.
func TestSquattedSocket(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	var trap net.Listener
	env := squat(t, m, func(place string) (err error) {
		if err = errors.Join(os.Mkdir(place, 0o755), unix.Mkfifo(filepath.Join(place, "lock"), 0o666)); err == nil {
			trap, err = net.Listen("unix", filepath.Join(place, "admin.sock"))
		}
		return errors.Join(err, os.Chown(place, alice, alice))
	})
	defer func() { _ = trap.Close() }()
	if err := os.Remove(linkOf(t, m)); err != nil {
		t.Fatal(err)
	}
	out, err := within(t, m.Command("status", "--json", m.Dir), env)
	var st adminapi.Status
	if jsonErr := json.Unmarshal([]byte(out), &st); err != nil || jsonErr != nil || st.MountPoint != m.Dir {
		t.Errorf("status: %v\n%s", err, out)
	}
	if out, err = within(t, m.Command("umount", m.Dir), env); err != nil {
		t.Errorf("umount: %v\n%s", err, out)
	}
	if left := mnt.MountedBelow(m.Dir); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
}

// TestGivenDirectories mounts with existing directories: files that are not hmcfs's own are
// unchanged, also after the unmount.
func TestGivenDirectories(t *testing.T) {
	kit.Check(t)
	m := mnt.Prepare(t, mnt.Options{})
	thesis := filepath.Join(m.StateDir, "metadata", "thesis.txt")
	must(t, os.MkdirAll(filepath.Dir(thesis), 0o755))
	must(t, os.WriteFile(thesis, kit.Bytes(7, 0, 1000), 0o644))
	must(t, os.Chmod(m.StateDir, 0o777|os.ModeSticky))
	mount := func() (string, error) {
		return within(t, m.Command("mount", "--state-dir", m.StateDir, "--runtime-dir", m.RuntimeDir, "--device", "host,size=16MiB", m.Dir), os.Environ())
	}
	for range 2 {
		if out, err := mount(); err == nil || !strings.Contains(out, "--state-dir") || !strings.Contains(out, m.StateDir) {
			t.Fatalf("mount with somebody's directory: %v\n%s", err, out)
		}
		if st, err := os.Stat(m.StateDir); err != nil || st.Mode() != os.ModeDir|os.ModeSticky|0o777 {
			t.Errorf("the directory is %v, %v", st.Mode(), err)
		}
	}
	must(t, os.RemoveAll(filepath.Dir(thesis)))
	for _, dir := range []string{m.StateDir, m.RuntimeDir} {
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.Chmod(dir, 0o755))
	}
	for range 2 {
		if out, err := mount(); err != nil {
			t.Fatalf("mount with empty directories: %v\n%s", err, out)
		}
		writeSome(t, m.Path("host"))
		if out, err := within(t, m.Command("umount", m.Dir), os.Environ()); err != nil {
			t.Fatalf("umount: %v\n%s", err, out)
		}
		for _, dir := range []string{m.StateDir, m.RuntimeDir} {
			if st, err := os.Stat(dir); err != nil || st.Mode() != os.ModeDir|0o755 {
				t.Errorf("%s is %v, %v", dir, st, err)
			}
		}
		if left, err := os.ReadDir(m.RuntimeDir); err != nil || len(left) > 0 {
			t.Errorf("in the runtime directory: %v, %v", left, err)
		}
	}
}
