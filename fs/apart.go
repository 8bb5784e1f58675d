package fs

import (
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sys/unix"
)

// apart runs a function, in which this process asks its own mount, on a thread
// that shares no descriptor with the others and has none but the standard ones.
//
// The kernel waits for the answer to a request that the process has read, also
// when it is killed: it ends when /dev/fuse is closed, which is when the last
// thread that shares the descriptor has ended. A thread that has it and waits
// would wait for itself, and keep the process and its mount for good.
func apart(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The descriptors of the first thread are those of /proc/self/fd.
			defer runtime.UnlockOSThread()
			result <- apart(do)
			return
		}
		if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_UNSHARE); err != nil {
			result <- fmt.Errorf("begin a thread without descriptors: %w", err)
			return
		}
		result <- do()
	}()
	return <-result
}
