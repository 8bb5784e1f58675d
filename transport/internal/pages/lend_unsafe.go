package pages

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FromMemory takes the pages of b, as many as the empty pipe has room for: what is
// written to them before they have gone is what goes.
//
// Errors: those of vmsplice(2), such as of memory that is a device's.
func (p *Pipe) FromMemory(b []byte) error {
	vec := unix.Iovec{Base: unsafe.SliceData(b)}
	vec.SetLen(len(b))
	// It does not wait: see ToSocket.
	n, _, errno := unix.RawSyscall6(unix.SYS_VMSPLICE, uintptr(p.w), uintptr(unsafe.Pointer(&vec)), 1, unix.SPLICE_F_NONBLOCK, 0, 0)
	if errno != 0 {
		return fmt.Errorf("take the pages of memory: %w", errno)
	}
	p.held += int(n)
	return nil
}

// Held returns the number of bytes in the pipe.
func (p *Pipe) Held() int { return p.held }

// ToSocket sends up to n bytes of the pipe, and does not wait. The runtime is not
// told of the call: it might give the processor to another thread meanwhile, which
// takes longer than this does.
//
// Errors: unix.EAGAIN where there is no room.
func (p *Pipe) ToSocket(fd, n int) (int, error) {
	k, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(p.r), 0, uintptr(fd), 0, uintptr(min(n, p.held)), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if errno != 0 {
		return 0, errno
	}
	p.held -= int(k)
	return int(k), nil
}
