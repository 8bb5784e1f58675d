package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestUmountLeavesNothing ends a mount in the ways that are clean.
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

// writeSome makes a small tree in a directory of the mount.
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

// TestKeep unmounts with --keep: the host tier is there at the next mount as
// it was, what was on a device is lost and says so.
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

// checkSome checks what writeSome made, but for the bytes.
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

// waitForEnd waits until there is no such process.
func waitForEnd(t *testing.T, pid int) {
	t.Helper()
	kit.Eventually(t, 30*time.Second, func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
}

// TestKilledInUmount kills the daemon at moments of an unmount: the next mount
// takes what is left, and what it shows is whole or lost.
func TestKilledInUmount(t *testing.T) {
	for _, flags := range [][]string{nil, {"--keep"}} {
		t.Run(strings.Join(append([]string{"umount"}, flags...), " "), func(t *testing.T) {
			kit.Check(t)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			m := mnt.Mount(t, mnt.Options{})
			for round := range kit.Rounds(5, 10, 250) {
				names := writeRound(t, m, round)
				umount := m.Command(append(append([]string{"umount"}, flags...), m.Dir)...)
				must(t, umount.Start())
				<-time.After(time.Duration(rng.IntN(80_000)) * time.Microsecond) // death may come at any moment
				m.Kill()
				_ = umount.Wait() // it may have been cut off
				m.Start()
				checkFsckProblems(t, m)
				for i, name := range names {
					wholeLostOrGone(t, name, roundBytes(round, i))
				}
				if t.Failed() {
					t.Fatalf("in round %d", round)
				}
			}
		})
	}
}

// writeRound makes the files of a round.
func writeRound(t *testing.T, m *mnt.M, round int) (names []string) {
	t.Helper()
	for i := range 20 {
		name := m.Path("host", fmt.Sprintf("%d-%d", round, i))
		must(t, os.WriteFile(name, roundBytes(round, i), 0o600))
		names = append(names, name)
	}
	return names
}

// roundBytes are the bytes of a file of a round.
func roundBytes(round, i int) []byte { return kit.Bytes(uint64(round), int64(i), 3001*i) }

// wholeLostOrGone demands that a file has its bytes, says that they are lost, or
// is not there, and removes it.
func wholeLostOrGone(t *testing.T, name string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	state, stateErr := getXattr(name, "user.hmc.state")
	at := kit.FirstDiff(got, content)
	whole, lost := err == nil && at < 0, errors.Is(err, unix.EIO) && state == "lost"
	if !whole && !lost || stateErr != nil {
		t.Errorf("%s: state %s, %v, %d bytes, %v, differs at %d", name, state, stateErr, len(got), err, at)
	}
	must(t, os.Remove(name))
}
