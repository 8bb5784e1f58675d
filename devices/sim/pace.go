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
	// creditLimit bounds what a late wake-up gives to the next copy. Without
	// it a busy machine would slow the channel down for good.
	creditLimit = 2 * time.Millisecond
)

// channel is one direction of transfer, in virtual time: busy says until when
// it is taken.
type channel struct {
	base    time.Time
	rate    devices.Size // bytes a second; 0 is no limit
	latency time.Duration

	mu sync.Mutex
	// +checklocks:mu
	busy time.Duration // since base
	// credit is by how much the last wait woke up too late.
	// +checklocks:mu
	credit time.Duration
}

// pace begins a copy now. The function that it returns takes the channel for
// each piece and waits until the piece would have arrived.
func (c *channel) pace() hostmem.Pace {
	if c.rate == 0 && c.latency == 0 {
		return nil
	}
	// at is the present of this copy in virtual time, so that what a wait oversleeps
	// is not added to the pieces after it.
	at := c.begin()
	return func(ctx context.Context, n int) error {
		at = c.take(at, n)
		late, err := waitUntil(ctx, c.base.Add(at+c.latency))
		c.owe(late)
		return err
	}
}

// begin returns when a copy that is called for now begins: earlier, if the
// one before it was held up only by its waking.
func (c *channel) begin() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	credit := c.credit
	c.credit = 0
	return time.Since(c.base) - credit
}

// owe notes how late a wait ended, for the next copy.
func (c *channel) owe(late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credit = min(late, creditLimit)
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

// waitUntil returns at the time given or when the context ends. late is by how
// much it overslept; that the time was past at the call is not its doing.
func waitUntil(ctx context.Context, when time.Time) (late time.Duration, err error) {
	for waited := false; ; waited = true {
		left := time.Until(when)
		switch {
		case left <= 0 && waited:
			return -left, nil
		case left <= 0:
			return 0, nil
		case left > timerSlack:
			if err := sleepWith(ctx, left-timerSlack); err != nil {
				return 0, err
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

// sleepWith sleeps until the context ends.
func sleepWith(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
