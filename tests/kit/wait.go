package kit

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The pauses between two checks of a condition.
const (
	shortestPause = time.Millisecond
	longestPause  = 50 * time.Millisecond
)

// Condition is the type of a condition for Eventually: true, or no error.
type Condition interface {
	func() bool | func() error
}

// Eventually waits until the condition holds. It fails the test immediately if that takes
// longer than the timeout, and then prints the last error of a condition that returns one.
func Eventually[C Condition](t testing.TB, timeout time.Duration, cond C) {
	t.Helper()
	for wait := newBackoff(timeout); ; {
		var err error
		switch holds := any(cond).(type) {
		case func() bool:
			if holds() {
				return
			}
		case func() error:
			if err = holds(); err == nil {
				return
			}
		}
		if wait.next() {
			continue
		}
		if err != nil {
			t.Fatalf("not within %v: %v", timeout, err)
		}
		t.Fatalf("not within %v", timeout)
	}
}

// ClockTick returns when the clock from which the kernel takes file times has advanced, so
// that the next change of a file gets a later time than the last one: that time may come from
// a finer clock, which is ahead of the coarse one by up to a tick.
func ClockTick(t testing.TB) {
	t.Helper()
	start := time.Now().UnixNano()
	Eventually(t, time.Minute, func() bool { return coarseTime(t) > start })
}

// coarseTime reads the clock from which the kernel takes file times.
func coarseTime(t testing.TB) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		t.Fatalf("read the coarse clock: %v", err)
	}
	return ts.Nano()
}

// backoff paces the checks of a condition: frequent at first, then less so.
type backoff struct {
	deadline time.Time
	pause    time.Duration
}

// newBackoff starts a wait of at most timeout.
func newBackoff(timeout time.Duration) *backoff {
	return &backoff{deadline: time.Now().Add(timeout), pause: shortestPause}
}

// next pauses, and reports whether another check is due. The last check is after the deadline,
// so that a condition that held in time is never missed.
func (b *backoff) next() bool {
	if time.Now().After(b.deadline) {
		return false
	}
	time.Sleep(b.pause)
	b.pause = min(2*b.pause, longestPause)
	return true
}
