package sim

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/hostmem"
)

const (
	// The runtime's timers may fire a millisecond late, a thread's sleep some
	// 50 us: so the last stretch of a wait is slept by the thread, and the
	// very last is spun, or a copy of 1 MiB at 20 GB/s (52 us) would take
	// twice its time.
	timerSlack = 2 * time.Millisecond
	sleepSlack = 80 * time.Microsecond
)

// channel is one direction of transfer, in virtual time: busy says until when
// it is taken.
type channel struct {
	base    time.Time
	rate    devices.Size // bytes a second; 0 is no limit
	latency time.Duration

	mu   sync.Mutex
	busy time.Duration // since base
}

// pace begins a copy now. The function that it returns takes the channel for
// each piece and waits until the piece would have arrived.
func (c *channel) pace() hostmem.Pace {
	if c.rate == 0 && c.latency == 0 {
		return nil
	}
	// at is where this copy is in virtual time, so that what a wait oversleeps
	// is not added to the pieces after it.
	at := time.Since(c.base)
	return func(ctx context.Context, n int) error {
		at = c.take(at, n)
		return waitUntil(ctx, c.base.Add(at+c.latency))
	}
}

// take occupies the channel for n bytes, not before from, and returns when
// they are through.
func (c *channel) take(from time.Duration, n int) time.Duration {
	if c.rate == 0 {
		return from
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = max(c.busy, from) + time.Duration(float64(n)/float64(c.rate)*1e9)
	return c.busy
}

// waitUntil returns at the time given, to some microseconds, or when the
// context ends.
func waitUntil(ctx context.Context, when time.Time) error {
	for {
		left := time.Until(when)
		switch {
		case left <= 0:
			return nil
		case left > timerSlack:
			timer := time.NewTimer(left - timerSlack)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
		case left > sleepSlack:
			// A signal ends the sleep early; the loop looks again.
			ts := unix.NsecToTimespec(int64(left - sleepSlack))
			_ = unix.Nanosleep(&ts, nil)
		default:
			runtime.Gosched()
		}
	}
}
