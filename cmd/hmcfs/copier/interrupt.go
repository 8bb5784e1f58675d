package copier

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// nudge is the interval at which a system call that must end is signalled: a signal that
// arrives just before the call begins has no effect on it.
const nudge = 20 * time.Millisecond

// Interruptibly runs a function that makes one long system call. When the context ends in
// the meantime, the call ends too, with what it has done so far or EINTR: its thread gets
// the signal that the Go runtime uses for preemption, which has no other effect.
func Interruptibly(ctx context.Context, call func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, tid := os.Getpid(), unix.Gettid()
	over, left := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		tick := time.NewTicker(nudge)
		defer tick.Stop()
		for {
			_ = unix.Tgkill(pid, tid, unix.SIGURG)
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	})
	call()
	close(over)
	if !stop() {
		<-left // so that no other goroutine on this thread is signalled
	}
}
