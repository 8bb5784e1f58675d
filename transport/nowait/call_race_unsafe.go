//go:build race

package nowait

import (
	"cmp"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read makes one attempt to read from a socket that does not block. This call, and that of write, tell the race
// detector that a peer's answer comes after what it answers.
func Read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

// Receive is Read for a socket that blocks otherwise.
func Receive(fd uintptr, p []byte) (int, error) {
	here := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(here[:], 0); n <= 0 {
		return 0, cmp.Or(err, error(syscall.EAGAIN))
	}
	n, err := Read(fd, p)
	return max(n, 0), err
}

// write is Read in the other direction.
func write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }

// ReceivePaged is Receive.
func ReceivePaged(fd uintptr, p []byte) (int, error) { return Receive(fd, p) }

// Send makes one attempt to write to a socket that blocks otherwise. With the race detector it waits if there is room for a
// part only.
//
// Errors: those of write(2).
func Send(fd uintptr, p []byte) (int, error) {
	here := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(here[:], 0); n <= 0 {
		return 0, cmp.Or(err, error(syscall.EAGAIN))
	}
	n, err := write(fd, p)
	return max(n, 0), err
}

// sendMessage is sendmsg(2).
func sendMessage(fd uintptr, head *unix.Msghdr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(head)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
