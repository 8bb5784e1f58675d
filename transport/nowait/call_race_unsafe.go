//go:build race

package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read makes one attempt to read from a socket that does not block. Its errors are those of read(2). This call and
// that of Write tell the race detector that a peer's answer comes after what it answers.
func Read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

// Write makes one attempt to write to such a socket.
func Write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }

// sendMessage is sendmsg(2).
func sendMessage(fd uintptr, head *unix.Msghdr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(head)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
