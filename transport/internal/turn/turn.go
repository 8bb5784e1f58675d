package turn

import (
	"sync/atomic"
	"time"
)

// rest is the time in which nothing must have been read before the connection's
// goroutine takes the turn back, and how close together the frames must have
// come before it lets it go.
const rest = time.Millisecond

// trust is the number of frames in a row that must have come close together.
const trust = 4

// Turn is the right to read from a connection.
type Turn struct {
	// token is there while nobody reads.
	token  chan struct{}
	recall chan struct{}
	// interrupt makes a read of the connection end, resume lets it be read
	// again.
	interrupt, resume func()
	// waiting counts those that would read by themselves, uses how often one has.
	waiting atomic.Int32
	uses    atomic.Uint64
	// away is true while the connection's goroutine has let the turn go.
	away atomic.Bool
	// last, quick and clock are the connection's goroutine's. The clock runs
	// while the turn is let go, and is kept: that may be many times a second.
	last  time.Time
	quick int
	clock *time.Ticker
}

// New returns the turn of a connection, whose goroutine has it. interrupt makes
// a read of the connection end, and resume lets the connection be read again;
// both may be called after the connection's end.
func New(interrupt, resume func()) *Turn {
	return &Turn{token: make(chan struct{}, 1), recall: make(chan struct{}, 1), interrupt: interrupt, resume: resume}
}

// Want notes a waiter that would read by itself.
func (t *Turn) Want() { t.waiting.Add(1) }

// Unwant ends a Want.
func (t *Turn) Unwant() { t.waiting.Add(-1) }

// Wanted is for the connection's goroutine, after it has read a frame: it says
// whether it shall yield.
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

// Yield is for the connection's goroutine, which has the turn: it lets those
// who wait read, until nobody does or stop is closed, and has the turn again
// then.
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

// regain takes the turn from whoever has it.
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

// Token is for who waits: who receives from it has the turn, until Give.
func (t *Turn) Token() <-chan struct{} { return t.token }

// Use notes that who has the turn goes on with it.
func (t *Turn) Use() { t.uses.Add(1) }

// Give lets the turn go.
func (t *Turn) Give() { t.token <- struct{}{} }

// Recall makes the connection's goroutine take the turn back, if it has let it
// go. It costs next to nothing otherwise.
func (t *Turn) Recall() {
	if !t.away.Load() {
		return
	}
	select {
	case t.recall <- struct{}{}:
	default:
	}
}
