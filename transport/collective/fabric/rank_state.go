package fabric

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// rankState is the state of a rank that the other ranks of its node see. The memory may be
// writable by them.
type rankState struct {
	// count is the rank's counter of Signals.
	count atomic.Uint64
	_     [56]byte
	// asleep is set while the rank sleeps, or is about to. A rank that has something for it
	// clears the flag and rings its bell.
	asleep atomic.Uint32
	// rung counts the rings of the bell, where it is a futex.
	rung atomic.Uint32
	_    [56]byte
}

// bells puts ranks to sleep and wakes them.
type bells interface {
	// ring wakes a rank that was asleep in the way that its state named.
	ring(of plan.Rank, how uint32)
	// sleep sleeps until our bell rings, or returns at once if the counter rung has changed
	// from before. It may return early.
	sleep(ctx context.Context, before uint32) error
}

// node holds the ranks of one host, from the view of one of them. It implements Signals.
type node struct {
	me plan.Rank
	// states is indexed by rank; nil for ranks of other hosts.
	states []*rankState
	bells  bells
	// spin is the time that a waiter polls before it sleeps.
	spin time.Duration
	// gone holds, for each rank that has ended, the reason.
	gone []atomic.Pointer[LinkError]
	// stopped ends the current wait, or the next one.
	stopped atomic.Bool
	// interrupted wakes a waiter in a rendezvous, which then checks stopped.
	interrupted chan struct{}
}

func newNode(me plan.Rank, seats []*rankState) *node {
	return &node{me: me, states: seats, gone: make([]atomic.Pointer[LinkError], len(seats)), interrupted: make(chan struct{}, 1)}
}

// Rank returns our own rank.
func (n *node) Rank() plan.Rank { return n.me }

// Size returns the number of ranks.
func (n *node) Size() int { return len(n.states) }

// polls is the number of polls for which Arrive waits for a counter: about the time that a
// rank takes which is about to set it. Reading the clock would take longer.
const polls = 1000

// Arrive sets our own counter, and checks those of all other ranks.
func (n *node) Arrive(value uint64) bool {
	n.states[n.me].count.Store(value)
	for r, s := range n.states {
		if s != nil && r != int(n.me) {
			n.wake(plan.Rank(r))
		}
	}
	turns := 1
	if n.spin > 0 {
		turns = polls
	}
	for _, s := range n.states {
		if s == nil {
			return false
		}
		for s.count.Load() < value {
			if turns--; turns <= 0 {
				return false
			}
		}
	}
	return true
}

// Get returns the counter of a rank.
func (n *node) Get(of plan.Rank) uint64 { return n.states[of].count.Load() }

// wake rings a rank's bell if it sleeps.
func (n *node) wake(of plan.Rank) {
	s := n.states[of]
	if s.asleep.Load() == 0 {
		return
	}
	if how := s.asleep.Swap(0); how != 0 {
		n.bells.ring(of, how)
	}
}

// Interrupt ends the current wait, or the next one.
func (n *node) Interrupt() {
	n.stopped.Store(true)
	n.wake(n.me)
	signal(n.interrupted)
}

// note records that a rank has ended.
func (n *node) note(of plan.Rank, cause error) {
	n.gone[of].CompareAndSwap(nil, &LinkError{of, cause})
}

// lose records that a rank has ended, and wakes our own rank if it sleeps.
func (n *node) lose(of plan.Rank, cause error) {
	n.note(of, cause)
	n.wake(n.me)
}

// Await waits until the counter of a rank is at least value.
func (n *node) Await(ctx context.Context, of plan.Rank, value uint64) error {
	count := &n.states[of].count
	s := n.spinner()
	for count.Load() < value {
		if !s.again() {
			return n.await(ctx, of, value)
		}
	}
	return nil
}

// await is the part of Await that sleeps.
func (n *node) await(ctx context.Context, of plan.Rank, value uint64) error {
	mine, count := n.states[n.me], &n.states[of].count
	defer mine.asleep.Store(0)
	for {
		before := mine.rung.Load()
		mine.asleep.Store(asleepAtBell)
		// A counter that a rank set before it ended still counts.
		gone := n.gone[of].Load()
		switch {
		case count.Load() >= value:
			return nil
		case n.stopped.Swap(false):
			return ErrInterrupted
		case gone != nil:
			return gone
		}
		if err := n.bells.sleep(ctx, before); err != nil {
			return err
		}
	}
}

// spinner bounds the polling of a waiter.
type spinner struct {
	limit time.Duration
	began time.Time
	turns int
}

const (
	// look is the number of polls between two readings of the clock, and between two
	// yields.
	look = 32
	// turnsAnyway is the number of polls, and yields between them, before a rank without a
	// processor of its own sleeps. Continuing after a yield is cheaper than a wakeup.
	turnsAnyway = 4
)

func (n *node) spinner() spinner { return spinner{limit: n.spin} }

// again reports whether to poll once more.
func (s *spinner) again() bool {
	s.turns++
	if s.limit == 0 {
		runtime.Gosched()
		return s.turns < turnsAnyway
	}
	if s.turns%look != 0 {
		return true
	}
	runtime.Gosched() // the ranks that it waits for may be in this process
	if s.began.IsZero() {
		s.began = time.Now()
		return true
	}
	return time.Since(s.began) < s.limit
}
