package tests

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

func renameat2(from, to string, flags uint) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
}

func TestRenameFlags(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 5000)
		create(t, p.path("b"), 2, 6000)
		must(t, os.Mkdir(p.path("d"), 0o755))
		create(t, p.path("d", "in"), 3, 10)
		wantErrno(t, renameat2(p.path("a"), p.path("b"), unix.RENAME_NOREPLACE), unix.EEXIST)
		wantContent(t, p.path("b"), 2, 6000)
		must(t, renameat2(p.path("a"), p.path("c"), unix.RENAME_NOREPLACE))
		wantContent(t, p.path("c"), 1, 5000)
		inodes := [2]uint64{lstat(t, p.path("b")).Ino, lstat(t, p.path("c")).Ino}
		must(t, renameat2(p.path("b"), p.path("c"), unix.RENAME_EXCHANGE))
		wantContent(t, p.path("b"), 1, 5000)
		wantContent(t, p.path("c"), 2, 6000)
		if now := [2]uint64{lstat(t, p.path("c")).Ino, lstat(t, p.path("b")).Ino}; now != inodes {
			t.Errorf("inodes %v, want %v", now, inodes)
		}
		// A file and a directory.
		must(t, renameat2(p.path("b"), p.path("d"), unix.RENAME_EXCHANGE))
		wantContent(t, p.path("d"), 1, 5000)
		wantContent(t, p.path("b", "in"), 3, 10)
		wantErrno(t, renameat2(p.path("c"), p.path("none"), unix.RENAME_EXCHANGE), unix.ENOENT)
		wantErrno(t, renameat2(p.path("c"), p.path("d"), unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE), unix.EINVAL)
		if !p.isTmpfs() {
			wantErrno(t, renameat2(p.path("c"), p.path("new"), unix.RENAME_WHITEOUT), unix.EINVAL)
		}
	})
}

func TestRenameRules(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("f"), 1, 10)
		must(t, os.MkdirAll(p.path("d", "e"), 0o755))
		must(t, os.Mkdir(p.path("empty"), 0o755))
		wantErrno(t, os.Rename(p.path("d"), p.path("d", "e", "x")), unix.EINVAL)
		wantErrno(t, unix.Rename(p.path("d", "e"), p.path("d")), unix.ENOTEMPTY)
		wantErrno(t, unix.Rename(p.path("empty"), p.path("d")), unix.ENOTEMPTY)
		wantErrno(t, unix.Rename(p.path("d"), p.path("f")), unix.ENOTDIR)
		wantErrno(t, unix.Rename(p.path("f"), p.path("d")), unix.EISDIR)
		must(t, unix.Rename(p.path("d"), p.path("empty")))
		must(t, os.Remove(p.path("empty", "e")))
		must(t, os.Link(p.path("f"), p.path("g")))
		// Two names of one file: nothing happens.
		must(t, unix.Rename(p.path("f"), p.path("g")))
		wantContent(t, p.path("f"), 1, 10)
		if st := lstat(t, p.path(".")); st.Nlink != 3 {
			t.Errorf("a directory with one directory in it has %d links", st.Nlink)
		}
	})
}

func TestRenameAcrossDevicesMovesTheContent(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{
		"host,size=64MiB", "sim:0,size=64MiB", "sim:1,size=64MiB", "sim:2,size=64MiB,mapped=true",
	}})
	const size = 5<<20 + 77
	at := m.Path("host", "t")
	create(t, at, 1, size)
	must(t, unix.Setxattr(at, "user.note", []byte("kept"), 0))
	must(t, unix.Setxattr(at, "user.hmc.key", []byte("k"), 0))
	must(t, os.Chmod(at, 0o604))
	must(t, os.Chown(at, alice, bob))
	times := []unix.Timespec{{Sec: 100, Nsec: 1}, {Sec: 200, Nsec: 2}}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, at, times, 0))
	before := lstat(t, at)
	from := "host"
	for _, device := range []string{"sim0", "sim1", "host", "sim2", "host", "sim1"} {
		to := m.Path(device, "t")
		must(t, os.Rename(at, to))
		if _, err := os.Lstat(at); !os.IsNotExist(err) {
			t.Errorf("the old name: %v", err)
		}
		st := lstat(t, to)
		if st.Ino != before.Ino || st.Mode != before.Mode || st.Uid != before.Uid || st.Gid != before.Gid ||
			st.Size != before.Size || st.Mtim != before.Mtim {
			t.Errorf("on %s: %+v\nbefore: %+v", device, st, before)
		}
		wantXattr(t, to, "user.hmc.device", device)
		wantXattr(t, to, "user.note", "kept")
		wantXattr(t, to, "user.hmc.key", "k")
		want := map[bool]string{true: "h2d", false: "staged"}[from == "host"]
		if device == "host" {
			want = "d2h"
		}
		wantXattr(t, to, "user.hmc.path", want)
		wantContent(t, to, 1, size)
		wantContent(t, m.Path("keys", "k"), 1, size)
		at, from = to, device
	}
	must(t, os.Remove(at))
	for _, device := range []string{"sim0", "sim1", "sim2"} {
		wantAllFree(t, m, device)
	}
}

// wantAllFree checks that no memory of a device is in use.
func wantAllFree(t testing.TB, m *mnt.M, device string) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() bool { return m.Device(device).Used == 0 })
}

func TestRenameOverAFileOfAnotherDevice(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	create(t, m.Path("sim0", "a"), 1, 1<<20)
	create(t, m.Path("sim1", "a"), 2, 2<<20)
	wantErrno(t, renameat2(m.Path("sim0", "a"), m.Path("sim1", "a"), unix.RENAME_NOREPLACE), unix.EEXIST)
	old := open(t, m.Path("sim1", "a"), os.O_RDONLY)
	must(t, os.Rename(m.Path("sim0", "a"), m.Path("sim1", "a")))
	wantContent(t, m.Path("sim1", "a"), 1, 1<<20)
	wantRange(t, old, 2, 0, 2<<20)
	must(t, old.Close())
}

func TestRenameAcrossDevicesOfWhatCannotMove(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	from, to := m.Path("sim0", "a"), m.Path("sim1", "a")
	create(t, from, 1, 3<<20)
	f := open(t, from, os.O_RDWR)
	wantErrno(t, unix.Rename(from, to), unix.EXDEV)
	wantErrno(t, renameat2(from, to, unix.RENAME_EXCHANGE), unix.ENOENT)
	create(t, to, 2, 10)
	wantErrno(t, renameat2(from, to, unix.RENAME_EXCHANGE), unix.EXDEV)
	must(t, os.Remove(to))
	// In this case mv(1) copies.
	out, err := exec.Command("mv", from, to).CombinedOutput()
	if err != nil {
		t.Fatalf("mv: %v: %s", err, out)
	}
	wantContent(t, to, 1, 3<<20)
	wantRange(t, f, 1, 0, 3<<20)
	must(t, f.Close())
	must(t, os.MkdirAll(m.Path("sim0", "d", "e"), 0o755))
	create(t, m.Path("sim0", "d", "e", "f"), 3, 1000)
	must(t, os.Symlink("e/f", m.Path("sim0", "d", "l")))
	wantErrno(t, unix.Rename(m.Path("sim0", "d"), m.Path("sim1", "d")), unix.EXDEV)
	if out, err := exec.Command("mv", m.Path("sim0", "d"), m.Path("sim1")).CombinedOutput(); err != nil {
		t.Fatalf("mv: %v: %s", err, out)
	}
	wantContent(t, m.Path("sim1", "d", "l"), 3, 1000)
}

func TestRenameToAFullDevice(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=8MiB", "sim:0,size=64MiB", "sim:1,size=8MiB"}})
	from := m.Path("sim0", "a")
	create(t, from, 1, 20<<20)
	for _, device := range []string{"sim1", "host"} {
		wantErrno(t, unix.Rename(from, m.Path(device, "a")), unix.ENOSPC)
		wantContent(t, from, 1, 20<<20)
		if _, err := os.Lstat(m.Path(device, "a")); !os.IsNotExist(err) {
			t.Errorf("a move that failed has left a name: %v", err)
		}
		wantAllFree(t, m, device)
	}
}
