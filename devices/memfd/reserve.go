package memfd

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// reserved returns f with its n bytes allocated, if the kernel does not overcommit
// (vm.overcommit_memory is 2). It counts a page of a file in memory when it is first written
// even then, and ends a process for which there is no room with SIGBUS.
func reserved(f *os.File, n int64) (*os.File, error) {
	mode, err := os.ReadFile("/proc/sys/vm/overcommit_memory")
	if err != nil || !bytes.HasPrefix(mode, []byte("2")) {
		return f, nil //nolint:nilerr // without /proc, as the kernel does by default
	}
	if err := allocate(f, n); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// allocate allocates the first n bytes of a file, in pieces, since a signal undoes one.
func allocate(f *os.File, n int64) error {
	const piece = 16 << 20
	for off := int64(0); off < n; {
		now := min(n-off, piece)
		switch err := unix.Fallocate(int(f.Fd()), 0, off, now); {
		case err == nil:
			off += now
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM):
			return fmt.Errorf("allocate %d bytes of %s: %w: %w", n, f.Name(), devices.ErrOutOfMemory, err)
		default:
			return fmt.Errorf("allocate %d bytes of %s: %w", n, f.Name(), err)
		}
	}
	return nil
}
