package content

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// utimensFd sets an open file's times by its descriptor, which the wrappers of x/sys can't:
// they take a path.
func utimensFd(fd int, ts *[2]unix.Timespec) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
