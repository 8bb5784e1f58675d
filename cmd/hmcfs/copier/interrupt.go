package copier

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// nudge is the interval at which a system call that is to end is told so: a signal that
// comes just before the call begins is lost on it.
const nudge = 20 * time.Millisecond

// Interruptibly runs a function that makes one long system call. When the
// context ends meanwhile, the call does too, with what it has done so far or
// EINTR: its thread gets the signal that Go itself uses for nudging threads,
// and that has no other effect.
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
		<-left // so that no other goroutine on this thread is nudged
	}
}
