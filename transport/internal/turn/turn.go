package turn

import (
	"context"
	"sync/atomic"
	"time"
)

// rest is the time without reads after which the connection's goroutine takes the
// turn back, and the longest gap between frames that counts as close together.
const rest = time.Millisecond

// trust is the number of consecutive frames that must have come close together
// before the connection's goroutine yields.
const trust = 4

// Turn is the right to read from a connection.
type Turn struct {
	// token holds one element while the turn is free.
	token  chan struct{}
	recall chan struct{}
	// interrupt makes a read of the connection return; resume makes the
	// connection readable again.
	interrupt, resume func()
	// waiting counts the goroutines ready to read themselves, uses counts their
	// reads.
	waiting atomic.Int32
	uses    atomic.Uint64
	// away is true while the connection's goroutine has yielded the turn.
	away atomic.Bool
	// last, quick and clock belong to the connection's goroutine. The clock runs
	// while the turn is yielded, and is reused, since that may happen many times
	// a second.
	last  time.Time
	quick int
	clock *time.Ticker
}

// New returns the turn of a connection, held by the connection's goroutine.
// interrupt makes a read of the connection return, and resume makes the
// connection readable again; both may be called after the connection's end.
func New(interrupt, resume func()) *Turn {
	return &Turn{token: make(chan struct{}, 1), recall: make(chan struct{}, 1), interrupt: interrupt, resume: resume}
}

// Receive receives from a channel to which the frames of the connection lead, and
// reads the connection itself while frames come fast: read does so, with the turn,
// and returns false when the waiter must leave the rest to the connection's
// goroutine. ok is false after that, at the end of the context, and when ended is
// closed: nothing was received, and the caller waits by other means.
func Receive[T any](ctx context.Context, t *Turn, from <-chan T, ended <-chan struct{}, read func() bool) (v T, ok bool) {
	t.waiting.Add(1)
	for {
		select {
		case v = <-from:
			t.waiting.Add(-1)
			return v, true
		case <-t.token:
			t.uses.Add(1)
			more := read()
			t.Give()
			if more {
				continue
			}
		case <-ctx.Done():
		case <-ended:
		}
		t.waiting.Add(-1)
		t.Recall()
		return v, false
	}
}

// Wanted is called by the connection's goroutine after it has read a frame: it
// reports whether that goroutine should yield.
func (t *Turn) Wanted() bool {
	if t.waiting.Load() == 0 {
		return false
	}
	now := time.Now()
	if now.Sub(t.last) > rest {
		t.quick = 0
	}
	t.last = now
	t.quick++
	return t.quick > trust
}

// Yield is called by the connection's goroutine, which has the turn: it lets the
// waiters read until none reads for a while, the turn is recalled, or stop is
// closed, and then has the turn again.
func (t *Turn) Yield(stop <-chan struct{}) {
	select {
	case <-t.recall:
	default:
	}
	t.away.Store(true)
	defer t.away.Store(false)
	seen := t.uses.Load()
	t.Give()
	if t.clock == nil {
		t.clock = time.NewTicker(rest)
	} else {
		t.clock.Reset(rest)
	}
	defer t.clock.Stop()
	for {
		select {
		case <-t.clock.C:
			if now := t.uses.Load(); now != seen {
				seen = now
				continue
			}
		case <-t.recall:
		case <-stop:
		}
		t.regain()
		return
	}
}

// regain takes the turn from its holder.
func (t *Turn) regain() {
	t.quick = 0
	select {
	case <-t.token:
		return
	default:
	}
	t.interrupt()
	<-t.token
	t.resume()
}

// Give releases the turn.
func (t *Turn) Give() { t.token <- struct{}{} }

// Recall makes the connection's goroutine take the turn back if it has yielded
// it. It costs next to nothing otherwise.
func (t *Turn) Recall() {
	if !t.away.Load() {
		return
	}
	select {
	case t.recall <- struct{}{}:
	default:
	}
}
