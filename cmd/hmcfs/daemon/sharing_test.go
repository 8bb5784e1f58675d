package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/share"
)

// TestForgetOthers keeps a number only where it is what has come.
func TestForgetOthers(t *testing.T) {
	open := func() *os.File {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "memfd")
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	a, b := open(), open()
	gone := 1 << 20
	for name, c := range map[string]struct {
		number int
		kind   devices.HandleKind
		pid    int
		kept   bool
	}{
		"the same":           {int(a.Fd()), devices.HandleMemfd, os.Getpid(), true},
		"another file":       {int(b.Fd()), devices.HandleMemfd, os.Getpid(), false},
		"no file":            {gone, devices.HandleMemfd, os.Getpid(), false},
		"of no process":      {int(a.Fd()), devices.HandleMemfd, 0, false},
		"not to be compared": {int(a.Fd()), devices.HandleVMM, os.Getpid(), false},
	} {
		r := objects.BindRequest{
			Memory:  share.Memory{PID: c.pid, Pieces: []share.Piece{{Kind: c.kind, FD: &c.number}}},
			Handles: []devices.Handle{{Kind: c.kind, File: a}},
		}
		forgetOthers(r)
		if kept := r.Memory.Pieces[0].FD != nil; kept != c.kept {
			t.Errorf("%s: kept is %v", name, kept)
		}
	}
}

// TestShownFile takes descriptors of the mount's own files alone.
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
