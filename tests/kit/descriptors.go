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

// AllowDescriptors lets this process, and those that it starts, open n descriptors until the test ends, or as many as the machine permits
// if that is less. It returns their number.
func AllowDescriptors(t testing.TB, n uint64) uint64 {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	n = max(n, old.Cur)
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: max(n, old.Max)}) != nil {
		n = old.Max // which needs no privilege
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: old.Cur, Max: max(n, old.Max)}); err != nil {
			t.Error(err)
		}
	})
	return n
}
