package devices

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Fallocate calls fallocate(2) for a file in host memory, and repeats the call if a signal
// interrupted it, which undoes the work done so far: Go's runtime sends signals to its own
// threads.
func Fallocate(fd int, mode uint32, off Offset, n Size) error {
	for {
		err := unix.Fallocate(fd, mode, int64(off), int64(n))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
