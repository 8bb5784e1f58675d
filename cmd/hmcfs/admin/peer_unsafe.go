package admin

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerGroups returns the supplementary groups of the process at the other end, for which
// package unix has no function.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		n := uint32(4 * len(groups))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&n)), 0)
		switch {
		case errno == 0:
			return groups[:n/4], nil
		case errno == unix.ERANGE && int(n/4) > len(groups):
			groups = make([]uint32, n/4)
		default:
			return nil, errno
		}
	}
}
