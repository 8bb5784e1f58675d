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

// watchdog ends the waits of a rank that last too long. The goroutine of the rank publishes
// the state of the current call by a few atomic stores; a goroutine of the watchdog reads
// it periodically, logs a wait longer than stuck, and halts one longer than timeout. Every
// wait of a group for another rank goes through park or await. Methods may be called
// concurrently; no lock is needed.
type watchdog struct {
	fabric         fabric.Fabric
	stuck, timeout time.Duration
	logger         *zap.Logger

	// call is the number of the current call; 0 if there is none.
	call atomic.Uint32
	// moved counts progress, step is the current step, and peers has a bit for each rank
	// that it waits for. waits counts the begins and the ends of waits: it is odd during
	// one.
	moved atomic.Uint64
	waits atomic.Uint64
	step  atomic.Int64
	peers atomic.Uint64
	// what is the call's name.
	what atomic.Pointer[string]
	// quiet is the time, in Unix nanoseconds, since which the watchdog has seen no progress
	// in the call; 0 if not set yet.
	quiet atomic.Int64
	// halted is the error with which every wait must end.
	halted atomic.Pointer[error]

	done    chan struct{}
	stopped sync.WaitGroup
}

// newWatchdog makes the watchdog of a group with a fabric; start starts it.
func newWatchdog(f fabric.Fabric, o *Options) *watchdog {
	return &watchdog{fabric: f, stuck: o.Stuck, timeout: o.Timeout, logger: o.Logger, done: make(chan struct{})}
}

// start starts the goroutine, which runs until close.
func (w *watchdog) start() { w.stopped.Go(w.run) }

// close ends all waits with ErrClosed, and the watchdog. It is called once, possibly during
// a call.
func (w *watchdog) close() {
	w.halt(ErrClosed)
	close(w.done)
	w.stopped.Wait()
}

// begin records the beginning of a call, and end its end.
func (w *watchdog) begin(call uint32, what *string) {
	w.moved.Add(1)
	// Loads are cheaper than stores, and these values seldom change.
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

// ranksOf returns the ranks in a bit set.
func ranksOf(set uint64) []plan.Rank {
	var out []plan.Rank
	for ; set != 0; set &= set - 1 {
		out = append(out, plan.Rank(bits.TrailingZeros64(set)))
	}
	return out
}

// quietSince returns the time since which there has been no progress, if it is known.
func (w *watchdog) quietSince() (time.Time, bool) {
	at := w.quiet.Load()
	return time.Unix(0, at), at != 0
}

// setOf returns the bit set of some ranks.
func setOf(ranks []plan.Rank) (set uint64) {
	for _, r := range ranks {
		set |= 1 << r
	}
	return set
}

// stop returns the error with which waits must end, or nil.
func (w *watchdog) stop() error {
	if e := w.halted.Load(); e != nil {
		return *e
	}
	return nil
}

// park sleeps until one of the links can make progress. It may return early. moved reports
// that there was progress since the last call. It does not allocate.
//
// Errors: ErrTimeout after Options.Timeout without progress; ErrClosed; the context's.
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

// await waits until the counter of a rank is at least value. It does not allocate.
//
// Errors: those of park; fabric.ErrLink for a rank that has ended.
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

// calm consumes a pending interruption of a wait that has ended, such as by the end of a
// page copy: otherwise it would end the next rendezvous of the ranks.
//
// Errors: ErrClosed, the only interruption that still matters; the context's.
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

// halt ends every wait with an error. The first error is kept, except that ErrClosed
// replaces any other and is final.
func (w *watchdog) halt(err error) {
	if errors.Is(err, ErrClosed) {
		w.halted.Store(&err)
	} else {
		w.halted.CompareAndSwap(nil, &err)
	}
	w.fabric.Interrupt()
}

// unhalt allows waits again after a timeout.
func (w *watchdog) unhalt() {
	if e := w.halted.Load(); e != nil && !errors.Is(*e, ErrClosed) {
		w.halted.CompareAndSwap(e, nil)
	}
	w.moved.Add(1)
}

// snapshot is a snapshot of the state that the watchdog observes.
type snapshot struct {
	call         uint32
	moved, waits uint64
}

// goesOn reports whether there was progress since another snapshot. A rank that was not
// waiting at any time in between was working on its own, and counts as progressing.
func (s snapshot) goesOn(since snapshot) bool {
	return s.call != since.call || s.moved != since.moved || s.call == 0 || s.waits == since.waits && s.waits%2 == 0
}

// run logs waits longer than stuck, and ends those longer than timeout, until done is
// closed.
func (w *watchdog) run() {
	limit := min(w.stuck, w.timeout)
	tick := time.NewTicker(min(max(limit/8, time.Millisecond), time.Second))
	defer tick.Stop()
	var last snapshot
	since, tell := time.Now(), w.stuck
	for {
		select {
		case <-w.done:
			return
		case <-tick.C:
		}
		now := snapshot{w.call.Load(), w.moved.Load(), w.waits.Load()}
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

// report logs which rank waits for which ranks.
func (w *watchdog) report(waited time.Duration) {
	e := w.timedOut(waited)
	w.logger.Warn("rank has been waiting for others",
		zap.Int("rank", int(e.Rank)), zap.Any("for", e.For), zap.String("call", e.What), zap.Uint32("number", e.Call),
		zap.Int("step", e.Step), zap.Duration("since", waited))
}
