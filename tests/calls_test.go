package tests

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const punchHole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE

func fallocate(f *os.File, mode uint32, off, n int64) error {
	_, err := again(func() (int, error) { return 0, unix.Fallocate(int(f.Fd()), mode, off, n) })
	return err
}

// copyFileRange calls copy_file_range(2).
func copyFileRange(from *os.File, in *int64, to *os.File, out *int64, n int) (int, error) {
	return again(func() (int, error) {
		return unix.CopyFileRange(int(from.Fd()), in, int(to.Fd()), out, n, 0)
	})
}

// again repeats a call while it is interrupted: Go's runtime sends signals to its own threads,
// and a raw system call that has moved nothing yet returns EINTR.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
