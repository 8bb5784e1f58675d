package kit

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// FillDescriptors takes all descriptors that this process may open, until free is called or the test ends. again takes those that
// something else in the process has closed since.
func FillDescriptors(t testing.TB) (again, free func()) {
	t.Helper()
	const most = 256
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var taken []int
	again = func() {
		for {
			fd, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return
			}
			taken = append(taken, fd)
		}
	}
	again()
	free = sync.OnceFunc(func() {
		for _, fd := range taken {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(free)
	return again, free
}
