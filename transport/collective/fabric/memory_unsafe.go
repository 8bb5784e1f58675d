package fabric

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Compile-time checks that the types fit into their space of a segment.
const (
	_ uint = rankStateSpace - uint(unsafe.Sizeof(rankState{}))
	_ uint = flowSpace - uint(unsafe.Sizeof(flow{}))
)

// rankStateAt and flowAt interpret the beginning of some memory.
//
// Preconditions: it is long enough and aligned to 64 bytes.
func rankStateAt(p []byte) *rankState { return (*rankState)(unsafe.Pointer(unsafe.SliceData(p))) }

func flowAt(p []byte) *flow { return (*flow)(unsafe.Pointer(unsafe.SliceData(p))) }

// The operations of futex(2), for words shared between processes.
const (
	futexOpWait = 0
	futexOpWake = 1
)

// futexWait sleeps while word has the value, for at most limit.
func futexWait(word *atomic.Uint32, value uint32, limit time.Duration) error {
	ts := unix.NsecToTimespec(limit.Nanoseconds())
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// futexDoze is futexWait for a short limit, of which the runtime is not notified: see nowait.
func futexDoze(word *atomic.Uint32, value uint32, limit time.Duration) error {
	ts := unix.NsecToTimespec(limit.Nanoseconds())
	_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// futexWake wakes all sleepers at a word.
func futexWake(word *atomic.Uint32) {
	// It fails only for an invalid address.
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1<<30, 0, 0, 0)
}

// The following system calls do not block, but may copy for longer than the runtime lets a
// thread in a system call keep its processor, which the thread would have to reacquire each
// time. So they do not notify the runtime (RawSyscall).

// polled reports whether a socket is ready, without waiting.
func polled(fd unix.PollFd) bool {
	var none unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	return n > 0 && errno == 0 || errno != 0 && !transient(errno)
}

// sendTwo sends head and body in one call, without waiting.
func sendTwo(fd int, v *[2]unix.Iovec, head, body []byte) (int, error) {
	v[0].Base, v[1].Base = unsafe.SliceData(head), unsafe.SliceData(body)
	v[0].SetLen(len(head))
	v[1].SetLen(len(body))
	msg := unix.Msghdr{Iov: &v[0]}
	msg.SetIovlen(2)
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	v[0].Base, v[1].Base = nil, nil
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// sendMore sends bytes that more bytes follow, without waiting.
func sendMore(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|unix.MSG_MORE, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// receiveNow receives the bytes that have arrived, without waiting.
func receiveNow(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
