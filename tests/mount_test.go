package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

func TestMountKeepsBytesAcrossRemountAndDeath(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	want := kit.Bytes(1, 0, 3<<20)
	if err := os.WriteFile(m.Path("host", "a"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got, err := os.ReadFile(m.Path("host", "a"))
		if err != nil {
			t.Fatal(err)
		}
		if i := kit.FirstDiff(got, want); i >= 0 {
			t.Fatalf("differs at %d of %d", i, len(got))
		}
	}
	check()
	m.Remount()
	check()
	m.Kill()
	m.Start()
	check()
}

// TestTerminalCloses sends SIGHUP to a daemon in the foreground: it ends in order, and nothing starts it again.
func TestTerminalCloses(t *testing.T) {
	m := mnt.Mount(t, mnt.Options{})
	holder := m.Status().Holder.PID
	must(t, unix.Kill(m.PID(), unix.SIGHUP))
	kit.Eventually(t, time.Minute, func() error {
		if left := mnt.MountedBelow(m.Dir); len(left) > 0 || unix.Kill(holder, 0) == nil {
			return fmt.Errorf("mounted are %v, and the holder is process %d", left, holder)
		}
		return nil
	})
}

// TestUmountOfAMountThatIsCovered mounts tmpfs over a mount: an unmount removes neither of
// them, and open files remain usable.
func TestUmountOfAMountThatIsCovered(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	create(t, m.Path("sim0", "a"), 1, 1<<20)
	f := open(t, m.Path("sim0", "a"), os.O_RDONLY)
	must(t, unix.Mount("hmcfs-test", m.Dir, "tmpfs", 0, ""))
	for _, lazy := range []bool{false, true} {
		_, err := m.Client().Umount(t.Context(), adminapi.UmountRequest{Lazy: lazy})
		if err == nil || !strings.Contains(err.Error(), "a tmpfs file system is mounted over "+m.Dir) {
			t.Errorf("lazy %v: %v", lazy, err)
		}
		wantRange(t, f, 1, 0, 1<<20)
		if at := mnt.MountedBelow(m.Dir); len(at) != 2 {
			t.Errorf("lazy %v: mounted are %q", lazy, at)
		}
	}
	must(t, unix.Unmount(m.Dir, 0))
	must(t, f.Close())
	wantContent(t, m.Path("sim0", "a"), 1, 1<<20)
}
