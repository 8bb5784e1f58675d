package fabric

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// seat is the part of a rank that the other ranks of a node see. It may lie in memory
// that they can write.
type seat struct {
	// count is the rank's counter of Signals.
	count atomic.Uint64
	_     [56]byte
	// asleep is set while the rank sleeps, or is about to: whoever has something
	// for it takes that away and rings.
	asleep atomic.Uint32
	// rung counts how often the bell was rung, where it is a futex.
	rung atomic.Uint32
	_    [56]byte
}

// bells are the words at which ranks sleep.
type bells interface {
	// ring wakes a rank, which was asleep as its seat said.
	ring(of plan.Rank, how uint32)
	// sleep sleeps until our bell rings, or was rung since rung had the value
	// before. It may return early.
	sleep(ctx context.Context, before uint32) error
}

// node is the ranks of one host, as one of them sees it. It is Signals.
type node struct {
	me plan.Rank
	// seats are by rank; nil for ranks of other hosts.
	seats []*seat
	bells bells
	// spin is the time that a waiter looks before it sleeps.
	spin time.Duration
	// yields has who looks let others run: they are in this process.
	yields bool
	// gone says why a rank is, if it is.
	gone []atomic.Pointer[LinkError]
	// stopped has the wait of now, or the next one, end.
	stopped atomic.Bool
	// interrupted wakes who waits in a meeting, who looks at stopped then.
	interrupted chan struct{}
}

func newNode(me plan.Rank, seats []*seat, b bells) *node {
	return &node{me: me, seats: seats, bells: b, gone: make([]atomic.Pointer[LinkError], len(seats)), interrupted: make(chan struct{}, 1)}
}

// Set sets our own counter.
func (n *node) Set(value uint64) {
	n.seats[n.me].count.Store(value)
	for r, s := range n.seats {
		if s != nil && r != int(n.me) {
			n.wake(plan.Rank(r))
		}
	}
}

// glance is the interval at which Meet looks at a counter: about as long as a rank takes that
// is on its way already. To look at a clock takes longer than that.
const glance = 1000

// Meet sets our own counter, and looks at those of all others.
func (n *node) Meet(value uint64) bool {
	n.Set(value)
	turns := 1
	if n.spin > 0 {
		turns = glance
	}
	for _, s := range n.seats {
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

// Get is the counter of a rank.
func (n *node) Get(of plan.Rank) uint64 { return n.seats[of].count.Load() }

// wake rings a rank's bell if it sleeps.
func (n *node) wake(of plan.Rank) {
	s := n.seats[of]
	if s.asleep.Load() == 0 {
		return
	}
	if how := s.asleep.Swap(0); how != 0 {
		n.bells.ring(of, how)
	}
}

// interrupt has the wait of now, or the next one, end.
func (n *node) interrupt() {
	n.stopped.Store(true)
	n.wake(n.me)
	select {
	case n.interrupted <- struct{}{}:
	default:
	}
}

// note notes that a rank is gone.
func (n *node) note(of plan.Rank, cause error) {
	n.gone[of].CompareAndSwap(nil, &LinkError{of, cause})
}

// lose notes that a rank is gone, and wakes us if we sleep.
func (n *node) lose(of plan.Rank, cause error) {
	n.note(of, cause)
	n.wake(n.me)
}

// Await waits until the counter of a rank is at least value.
func (n *node) Await(ctx context.Context, of plan.Rank, value uint64) error {
	count := &n.seats[of].count
	s := n.spinner()
	for count.Load() < value {
		if !s.again() {
			return n.await(ctx, of, value)
		}
	}
	return nil
}

// await is Await asleep.
func (n *node) await(ctx context.Context, of plan.Rank, value uint64) error {
	mine, count := n.seats[n.me], &n.seats[of].count
	defer mine.asleep.Store(0)
	for {
		before := mine.rung.Load()
		mine.asleep.Store(asleepAtBell)
		// What a rank that is gone has set before still counts.
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

// spinner looks for a while.
type spinner struct {
	limit  time.Duration
	yields bool
	began  time.Time
	turns  int
}

const (
	// look is the turns between two looks at the clock, and between two times
	// that others may run.
	look = 32
	// turnsAnyway is the number of times that others may run before a rank sleeps that has no
	// processor of its own. Going on after that is cheaper than to be woken.
	turnsAnyway = 4
)

func (n *node) spinner() spinner { return spinner{limit: n.spin, yields: n.yields} }

// again says whether to look once more.
func (s *spinner) again() bool {
	s.turns++
	if s.limit == 0 {
		if s.yields {
			runtime.Gosched()
			return s.turns < turnsAnyway
		}
		return false
	}
	if s.turns%look != 0 {
		return true
	}
	if s.yields {
		runtime.Gosched()
	}
	if s.began.IsZero() {
		s.began = time.Now()
		return true
	}
	return time.Since(s.began) < s.limit
}
