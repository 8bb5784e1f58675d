package collective

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// watchdog ends the waits of a rank that last too long. It is told of the current call
// by the goroutine of the rank, with no more than some stores, reads that from time to
// time in a goroutine of its own, reports a wait of stuck, and halts one of timeout.
// Every wait of a group for another rank goes through park or await. All methods may be
// called at the same time; it needs no lock.
type watchdog struct {
	fabric         fabric.Fabric
	stuck, timeout time.Duration
	logger         *zap.Logger

	// call is the number of the call under way; 0 is none.
	call atomic.Uint32
	// moved counts whatever goes on, step is where the rank is, and peers the ranks
	// that it waits for, a bit each. waits counts the begins and the ends of waits:
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
	// halted is why every wait has to stop.
	halted atomic.Pointer[error]

	done    chan struct{}
	stopped sync.WaitGroup
}

// newWatchdog makes the watchdog of a group with a fabric; start sets it to work.
func newWatchdog(f fabric.Fabric, o *Options) *watchdog {
	return &watchdog{fabric: f, stuck: o.Stuck, timeout: o.Timeout, logger: o.Logger, done: make(chan struct{})}
}

// start has the watchdog look after the group until close.
func (w *watchdog) start() { w.stopped.Go(w.run) }

// close ends all waits with ErrClosed, and the watchdog. It is called once, also during a
// call.
func (w *watchdog) close() {
	w.halt(ErrClosed)
	close(w.done)
	w.stopped.Wait()
}

// begin begins a call, and end ends it.
func (w *watchdog) begin(call uint32, what *string) {
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

func (w *watchdog) end() { w.call.Store(0) }

// advance notes that something went on.
func (w *watchdog) advance() { w.moved.Add(1) }

// ranksOf are the bits of a set.
func ranksOf(set uint64) []plan.Rank {
	var out []plan.Rank
	for ; set != 0; set &= set - 1 {
		out = append(out, plan.Rank(bits.TrailingZeros64(set)))
	}
	return out
}

// quietSince is since when nothing has gone on, where the watchdog knows.
func (w *watchdog) quietSince() (time.Time, bool) {
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
func (w *watchdog) stop() error {
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
func (w *watchdog) park(ctx context.Context, want []fabric.Want, step int, moved bool) error {
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
	err := w.fabric.Park(ctx, want)
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
func (w *watchdog) await(ctx context.Context, s fabric.Signals, of plan.Rank, value uint64, step int) error {
	if s.Get(of) >= value {
		return nil
	}
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

// calm ends the interruptions of waits that are over, such as by a page that was
// copied: the ranks would not find each other.
//
// Errors: ErrClosed, the interruption that counts; the context's.
func (w *watchdog) calm(ctx context.Context) error {
	w.fabric.Interrupt()
	if err := w.fabric.Park(ctx, nil); err != nil && !errors.Is(err, fabric.ErrInterrupted) {
		return err
	}
	if err := w.stop(); errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// halt ends every wait with an error. The first one counts, but for
// ErrClosed, which is for good.
func (w *watchdog) halt(err error) {
	if errors.Is(err, ErrClosed) {
		w.halted.Store(&err)
	} else {
		w.halted.CompareAndSwap(nil, &err)
	}
	w.fabric.Interrupt()
}

// unhalt lets calls wait again after a timeout.
func (w *watchdog) unhalt() {
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

// run reports waits of more than stuck, and ends those of more than timeout, until
// done is closed.
func (w *watchdog) run() {
	limit := min(w.stuck, w.timeout)
	tick := time.NewTicker(min(max(limit/8, time.Millisecond), time.Second))
	defer tick.Stop()
	var last sight
	since, tell := time.Now(), w.stuck
	for {
		select {
		case <-w.done:
			return
		case <-tick.C:
		}
		now := sight{w.call.Load(), w.moved.Load(), w.waits.Load()}
		on := now.goesOn(last)
		last = now
		if on {
			since, tell = time.Now(), w.stuck
			w.quiet.Store(since.UnixNano())
			continue
		}
		waited := time.Since(since)
		if waited >= tell {
			tell *= 2
			w.report(waited)
		}
		if waited >= w.timeout {
			w.halt(w.timedOut(waited))
		}
	}
}

// timedOut is the error of a wait in vain.
func (w *watchdog) timedOut(waited time.Duration) *TimeoutError {
	e := &TimeoutError{Rank: w.fabric.Rank(), For: ranksOf(w.peers.Load()), Call: w.call.Load(), Step: int(w.step.Load()), After: waited}
	if what := w.what.Load(); what != nil {
		e.What = *what
	}
	if s := w.fabric.Signals(); s != nil {
		for r := range w.fabric.Size() {
			if s.Get(plan.Rank(r)) < s.Get(w.fabric.Rank()) {
				e.Missing = append(e.Missing, plan.Rank(r))
			}
		}
	}
	return e
}

// report logs which rank waits for which.
func (w *watchdog) report(waited time.Duration) {
	e := w.timedOut(waited)
	w.logger.Warn("a rank waits for others",
		zap.Int("rank", int(e.Rank)), zap.Any("for", e.For), zap.String("call", e.What), zap.Uint32("number", e.Call),
		zap.Int("step", e.Step), zap.Duration("since", waited))
}
