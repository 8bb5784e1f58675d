//go:build race

package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// read and write make one attempt at a socket that does not block. These calls tell the race
// detector that a peer's answer comes after what it answers.
func read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

func write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }

// sendMessage is sendmsg(2).
func sendMessage(fd uintptr, head *unix.Msghdr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(head)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
