package fs

import (
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sys/unix"
)

// apart runs do, in which this process accesses its own mount, on a thread that shares no
// descriptors with the other threads and has none but the standard ones.
//
// The kernel waits for the answer to a request that the process has read even when the
// process is killed: the wait ends when /dev/fuse is closed, that is, when the last thread
// that shares the descriptor has exited. A waiting thread that shares it would wait for
// itself, and keep the process and its mount alive forever.
func apart(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The descriptors of the first thread are the ones shown in /proc/self/fd.
			defer runtime.UnlockOSThread()
			result <- apart(do)
			return
		}
		if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_UNSHARE); err != nil {
			result <- fmt.Errorf("start a thread without descriptors: %w", err)
			return
		}
		result <- do()
	}()
	return <-result
}
