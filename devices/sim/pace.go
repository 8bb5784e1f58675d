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
	// The runtime's timers may fire a millisecond late, a thread's sleep about 50 us. So
	// the last part of a wait is slept by the thread, and the very last is spun; otherwise
	// a copy of 1 MiB at 20 GB/s (52 us) would take twice as long.
	timerSlack = 2 * time.Millisecond
	sleepSlack = 80 * time.Microsecond
	// creditLimit bounds the time that a late wake-up credits to the next copy. Without a
	// credit a busy machine would slow the channel down permanently.
	creditLimit = 2 * time.Millisecond
)

// channel is one direction of transfer, in virtual time: busy is the time until which it is
// occupied.
type channel struct {
	base    time.Time
	rate    devices.Size // bytes per second; 0 means no limit
	latency time.Duration

	mu sync.Mutex
	// +checklocks:mu
	busy time.Duration // since base
	// credit is the time by which the last wait woke up too late.
	// +checklocks:mu
	credit time.Duration
}

// pace starts a copy now. The function that it returns occupies the channel for each piece
// and waits until the piece would have arrived.
func (c *channel) pace() hostmem.Pace {
	if c.rate == 0 && c.latency == 0 {
		return nil
	}
	// at is the current time of this copy in virtual time, so that the delay of a late
	// wake-up is not added to the pieces after it.
	at := c.begin()
	return func(ctx context.Context, n int) error {
		at = c.take(at, n)
		late, err := waitUntil(ctx, c.base.Add(at+c.latency))
		c.owe(late)
		return err
	}
}

// begin returns the start time of a copy that is called now: earlier than now, if the
// previous copy only ended late because of its wake-up.
func (c *channel) begin() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	credit := c.credit
	c.credit = 0
	return time.Since(c.base) - credit
}

// owe records how late a wait ended, for the next copy.
func (c *channel) owe(late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credit = min(late, creditLimit)
}

// take occupies the channel for n bytes, not before from, and returns the time when they
// have been transferred.
func (c *channel) take(from time.Duration, n int) time.Duration {
	if c.rate == 0 {
		return from
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = max(c.busy, from) + time.Duration(float64(n)/float64(c.rate)*1e9)
	return c.busy
}

// waitUntil returns at the given time or when the context ends. late is the time by which
// it overslept; it is 0 if the time had passed at the call already.
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
			// A signal ends the sleep early; the loop checks again.
			ts := unix.NsecToTimespec(int64(left - sleepSlack))
			_ = unix.Nanosleep(&ts, nil)
		default:
			runtime.Gosched()
		}
	}
}

// sleepWith sleeps for d, or until the context ends.
func sleepWith(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
