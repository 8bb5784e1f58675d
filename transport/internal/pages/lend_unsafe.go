package pages

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FromMemory puts the pages of b, as many as fit, into the empty pipe: bytes
// written to them before they have been sent are the ones that are sent.
//
// Errors: those of vmsplice(2), for example if the memory belongs to a device.
func (p *Pipe) FromMemory(b []byte) error {
	vec := unix.Iovec{Base: unsafe.SliceData(b)}
	vec.SetLen(len(b))
	// The call does not block: see ToSocket.
	n, _, errno := unix.RawSyscall6(unix.SYS_VMSPLICE, uintptr(p.w), uintptr(unsafe.Pointer(&vec)), 1, unix.SPLICE_F_NONBLOCK, 0, 0)
	if errno != 0 {
		return fmt.Errorf("pass pages of memory to a pipe: %w", errno)
	}
	p.held += int(n)
	return nil
}

// Held returns the number of bytes in the pipe.
func (p *Pipe) Held() int { return p.held }

// ToSocket sends up to n bytes from the pipe, without waiting. It bypasses the
// runtime's accounting of system calls: the runtime might pass the processor to
// another thread meanwhile, which takes longer than this call.
//
// Errors: unix.EAGAIN if there is no room.
func (p *Pipe) ToSocket(fd, n int) (int, error) {
	k, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(p.r), 0, uintptr(fd), 0, uintptr(min(n, p.held)), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if errno != 0 {
		return 0, errno
	}
	p.held -= int(k)
	return int(k), nil
}
