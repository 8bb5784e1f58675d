package collective

import (
	"context"
	"errors"
	"math/bits"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// watch has what the watchdog sees of a call: written by the rank's goroutine,
// with no more than some stores, and read from time to time.
type watch struct {
	// call is the number of the call under way; 0 is none.
	call atomic.Uint32
	// moved counts whatever goes on, step is where we are, and peers the ranks
	// that we wait for, a bit each. Waits counts the begins and the ends of waits:
	// it is odd in one.
	moved atomic.Uint64
	waits atomic.Uint64
	step  atomic.Int64
	peers atomic.Uint64
	// what is the call's name.
	what atomic.Pointer[string]
	// quiet is since when the watchdog has seen nothing go on in the call; 0 is
	// not yet.
	quiet atomic.Int64
	// halted is why whoever waits has to stop.
	halted atomic.Pointer[error]
}

// begin begins a call, and end ends it.
func (w *watch) begin(call uint32, what *string) {
	w.moved.Add(1)
	// To look is cheaper than to store, and these seldom change.
	if w.peers.Load() != 0 {
		w.peers.Store(0)
	}
	if w.quiet.Load() != 0 {
		w.quiet.Store(0)
	}
	if w.what.Load() != what {
		w.what.Store(what)
	}
	w.call.Store(call)
}

func (w *watch) end() { w.call.Store(0) }

// ranksOf are the bits of a set.
func ranksOf(set uint64) []plan.Rank {
	var out []plan.Rank
	for ; set != 0; set &= set - 1 {
		out = append(out, plan.Rank(bits.TrailingZeros64(set)))
	}
	return out
}

// quietSince is since when nothing has gone on, where the watchdog knows.
func (w *watch) quietSince() (time.Time, bool) {
	at := w.quiet.Load()
	return time.Unix(0, at), at != 0
}

// setOf is the bits of some ranks.
func setOf(ranks []plan.Rank) (set uint64) {
	for _, r := range ranks {
		set |= 1 << r
	}
	return set
}

// stop returns why the wait has to end, nil where it has not.
func (w *watch) stop() error {
	if e := w.halted.Load(); e != nil {
		return *e
	}
	return nil
}

// park sleeps until one of some links may go on. It may return early. Moved says
// that something went on since the last time. It allocates nothing.
//
// Errors: ErrTimeout after Options.Timeout in which nothing went on; ErrClosed;
// the context's.
func (g *Group) park(ctx context.Context, want []fabric.Want, step int, moved bool) error {
	w := &g.guard.watch
	var set uint64
	for i := range want {
		set |= 1 << want[i].Peer
	}
	w.peers.Store(set)
	w.step.Store(int64(step))
	if moved {
		w.moved.Add(1)
	}
	w.waits.Add(1)
	err := g.fabric.Park(ctx, want)
	w.waits.Add(1)
	if stop := w.stop(); stop != nil {
		return stop
	}
	if errors.Is(err, fabric.ErrInterrupted) {
		return nil
	}
	return err
}

// await waits until the counter of a rank is at least value. It allocates
// nothing.
//
// Errors: those of park; fabric.ErrLink for a rank that is gone.
func (g *Group) await(ctx context.Context, s fabric.Signals, of plan.Rank, value uint64, step int) error {
	if s.Get(of) >= value {
		return nil
	}
	w := &g.guard.watch
	w.peers.Store(1 << of)
	w.step.Store(int64(step))
	w.moved.Add(1)
	w.waits.Add(1)
	defer w.waits.Add(1)
	for {
		err := s.Await(ctx, of, value)
		if s.Get(of) >= value {
			return nil
		}
		if stop := w.stop(); stop != nil {
			return stop
		}
		if err != nil && !errors.Is(err, fabric.ErrInterrupted) {
			return err
		}
	}
}

// halt has whoever waits stop with an error. The first one counts, but for
// ErrClosed, which is for good.
func (g *Group) halt(err error) {
	w := &g.guard.watch
	if errors.Is(err, ErrClosed) {
		w.halted.Store(&err)
	} else {
		w.halted.CompareAndSwap(nil, &err)
	}
	g.fabric.Interrupt()
}

// unhalt lets calls wait again after a timeout.
func (g *Group) unhalt() {
	w := &g.guard.watch
	if e := w.halted.Load(); e != nil && !errors.Is(*e, ErrClosed) {
		w.halted.CompareAndSwap(e, nil)
	}
	w.moved.Add(1)
}

// sight has what the watchdog has seen.
type sight struct {
	call         uint32
	moved, waits uint64
}

// goesOn says whether something has gone on since another sight: also where a rank
// has waited for nobody in between, and so has done something of its own.
func (s sight) goesOn(since sight) bool {
	return s.call != since.call || s.moved != since.moved || s.call == 0 || s.waits == since.waits && s.waits%2 == 0
}

// dog looks after a group until done is closed: it tells who waits for longer
// than Options.Stuck, and ends what takes longer than Options.Timeout.
func (g *Group) dog(done <-chan struct{}) {
	limit := min(g.opts.Stuck, g.opts.Timeout)
	tick := time.NewTicker(min(max(limit/8, time.Millisecond), time.Second))
	defer tick.Stop()
	var last sight
	since, tell := time.Now(), g.opts.Stuck
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		w := &g.guard.watch
		now := sight{w.call.Load(), w.moved.Load(), w.waits.Load()}
		on := now.goesOn(last)
		last = now
		if on {
			since, tell = time.Now(), g.opts.Stuck
			w.quiet.Store(since.UnixNano())
			continue
		}
		waited := time.Since(since)
		if waited >= tell {
			tell *= 2
			g.tellStuck(waited)
		}
		if waited >= g.opts.Timeout {
			g.halt(g.timedOut(waited))
		}
	}
}

// timedOut is the error of a wait in vain.
func (g *Group) timedOut(waited time.Duration) *TimeoutError {
	w := &g.guard.watch
	e := &TimeoutError{Rank: g.Rank(), For: ranksOf(w.peers.Load()), Call: w.call.Load(), Step: int(w.step.Load()), After: waited}
	if what := w.what.Load(); what != nil {
		e.What = *what
	}
	if s := g.fabric.Signals(); s != nil {
		for r := range g.Size() {
			if s.Get(plan.Rank(r)) < s.Get(g.Rank()) {
				e.Missing = append(e.Missing, plan.Rank(r))
			}
		}
	}
	return e
}

// tellStuck reports which rank waits for which.
func (g *Group) tellStuck(waited time.Duration) {
	e := g.timedOut(waited)
	g.opts.Logger.Warn("a rank waits for others",
		zap.Int("rank", int(e.Rank)), zap.Any("for", e.For), zap.String("call", e.What), zap.Uint32("number", e.Call),
		zap.Int("step", e.Step), zap.Duration("since", waited))
}
