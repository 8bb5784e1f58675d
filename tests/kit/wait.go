package kit

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The pauses between two looks at a condition.
const (
	shortestPause = time.Millisecond
	longestPause  = 50 * time.Millisecond
)

// Condition is waited for by Eventually: true, or no error.
type Condition interface {
	func() bool | func() error
}

// Eventually waits until the condition holds and fails the test at once if
// it does not within the timeout. A condition that returns an error has its
// last error printed.
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

// ClockTick returns when the clock that the kernel stamps files with has passed the
// present, so that the next change of a file gets a later time than the last one: that
// may have been stamped with a finer clock, which a tick of the coarse one lags behind.
func ClockTick(t testing.TB) {
	t.Helper()
	start := time.Now().UnixNano()
	Eventually(t, time.Minute, func() bool { return coarseTime(t) > start })
}

// coarseTime reads the clock that the kernel stamps files with.
func coarseTime(t testing.TB) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		t.Fatalf("read the coarse clock: %v", err)
	}
	return ts.Nano()
}

// backoff paces looks at a condition: often at first, then less so.
type backoff struct {
	deadline time.Time
	pause    time.Duration
}

// newBackoff starts a wait of at most timeout.
func newBackoff(timeout time.Duration) *backoff {
	return &backoff{deadline: time.Now().Add(timeout), pause: shortestPause}
}

// next pauses and says whether another look is due. The last look is after
// the deadline, so that a condition that held in time is never missed.
func (b *backoff) next() bool {
	if time.Now().After(b.deadline) {
		return false
	}
	time.Sleep(b.pause)
	b.pause = min(2*b.pause, longestPause)
	return true
}
