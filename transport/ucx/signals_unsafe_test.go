package ucx

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handlers returns the addresses that the kernel calls for each signal.
func handlers(t *testing.T) map[int]uintptr {
	t.Helper()
	out := map[int]uintptr{}
	for sig := 1; sig < 65; sig++ {
		// The kernel's sigaction: handler, flags, restorer, mask.
		var act [4]uintptr
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&act)), 8, 0, 0)
		if errno == 0 {
			out[sig] = act[0]
		}
	}
	return out
}
