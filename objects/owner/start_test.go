package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A program's name may look like the fields after it.
func TestStartOf(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21"
	for _, name := range []string{"cat", "a b", ") S 1 2", "((", ")))", ""} {
		if start, err := startOf([]byte("4711 (" + name + ")" + rest)); err != nil || start != 987654 {
			t.Errorf("%q: %d, %v", name, start, err)
		}
	}
	for _, bad := range []string{"", "4711 (cat) S 1", "4711 (cat) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"} {
		if start, err := startOf([]byte(bad)); err == nil {
			t.Errorf("%q: %d", bad, start)
		}
	}
}

// If a descriptor can't be taken, its name in /proc leads to the same file, but only for the
// file's owner.
func TestOpenByDescriptor(t *testing.T) {
	fd, err := unix.MemfdCreate("named", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "named")
	name := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	want, _, err := Facts(f)
	if err != nil {
		t.Fatal(err)
	}
	fd, err = openFile(name, 0, uint32(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	again := os.NewFile(uintptr(fd), name)
	if got, _, ferr := Facts(again); got != want || ferr != nil {
		t.Errorf("it leads to %+v, not %+v: %v", got, want, ferr)
	}
	if err = errors.Join(CheckWritable(again), again.Close()); err != nil {
		t.Error(err)
	}
	if _, err = openFile(name, 0, uint32(os.Getuid())+12345); !errors.Is(err, ErrDenied) {
		t.Errorf("for another user: %v", err)
	}
	if err = f.Close(); err != nil {
		t.Error(err)
	}
}

// The kernel itself can resolve a path of a tmpfs, and a process's descriptor. A link is
// neither, as it is not followed.
func TestLeads(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "hmcfs-leads-") //nolint:usetesting // on a tmpfs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	f, err := os.Create(name)
	if err == nil {
		err = os.Symlink(name, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := Facts(f)
	if err != nil {
		t.Fatal(err)
	}
	descriptor := DescriptorPath(os.Getpid(), int(f.Fd()))
	for path, leads := range map[string]bool{name: true, descriptor: true, link: false, dir: false, filepath.Join(dir, "none"): false} {
		if got := Leads(path, want); got != leads {
			t.Errorf("%s leads to it: %t", path, got)
		}
	}
	if err = f.Close(); err != nil {
		t.Error(err)
	}
	if Leads(descriptor, want) {
		t.Error("a descriptor that is closed leads to it")
	}
}
