//go:build !race

package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// read and write make one attempt at a socket that does not block.
func read(fd uintptr, p []byte) (int, error) {
	return counted(unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

func write(fd uintptr, p []byte) (int, error) {
	return counted(unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// sendMessage is sendmsg(2).
func sendMessage(fd uintptr, head *unix.Msghdr) (int, error) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	return counted(unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(head)), flags))
}

func counted(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
