//go:build !race

package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read makes one attempt to read from a socket that does not block; 0 bytes without an error are its end.
//
// Errors: those of read(2), which is not repeated after an EINTR.
func Read(fd uintptr, p []byte) (int, error) {
	return counted(unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// ReceivePaged is Receive into memory that may have to be fetched first. The runtime is told of it.
func ReceivePaged(fd uintptr, p []byte) (int, error) {
	return counted(unix.Syscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0))
}

// Receive is Read for a socket that blocks otherwise.
func Receive(fd uintptr, p []byte) (int, error) {
	return counted(unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0))
}

// write is Read in the other direction.
func write(fd uintptr, p []byte) (int, error) {
	return counted(unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// Send makes one attempt to write to a socket that blocks otherwise.
//
// Errors: those of send(2), which is not repeated after an EINTR.
func Send(fd uintptr, p []byte) (int, error) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	return counted(unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0))
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
