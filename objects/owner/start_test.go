package owner

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A program's name may look like the fields behind it.
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

// Where a descriptor can't be taken, its name in /proc leads to the same file,
// for the file's owner only.
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
