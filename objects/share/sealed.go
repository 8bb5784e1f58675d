package share

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Sealed creates a file in memory of n bytes whose size can't change. The daemon maps such
// memory once it is registered, and copies to and from it without a system call; memory that
// could shrink is copied through its descriptor. The caller closes the file.
func Sealed(name string, n devices.Size) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:"+name)
	if err = f.Truncate(int64(n)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create %v of memory: %w", n, err), f.Close())
	}
	return f, nil
}
