package devices

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Fallocate is fallocate(2) of a file in host memory, begun again when a signal
// has ended it, which undoes what was done: Go's runtime sends signals to its
// own threads.
func Fallocate(fd int, mode uint32, off Offset, n Size) error {
	for {
		err := unix.Fallocate(fd, mode, int64(off), int64(n))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
