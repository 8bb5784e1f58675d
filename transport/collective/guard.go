package collective

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// guard keeps the ranks of a group in the same call: it numbers calls, compares their
// arguments, lets the dispatcher attempt them, ends them together, and repeats them after
// recovery. It belongs to one group; Group.mu guards it.
type guard struct {
	fabric     fabric.Fabric
	opts       *Options
	watch      *watchdog
	seq        *sequence
	messages   *messenger
	sync       *hostSync
	recovery   recovery
	keeper     *keeper
	dispatcher *dispatcher

	// ahead is a rank that has ended the lapsed calls.
	ahead plan.Rank
	// lost reports that links must be made anew before the next call.
	lost bool
	// tries is the maximum number of tries of the current call at any rank, as of the last
	// recovery.
	tries int
	// resumable reports that the previous call was a Barrier that can be continued.
	resumable bool
	// frames is the buffer of compare, kept to avoid an allocation.
	frames [][]byte
}

// errLost reports that links were lost before the call.
var errLost = fmt.Errorf("collective: links were lost in an earlier call: %w", fabric.ErrLink)

// duty describes a call, or an exchange that counts as one. All ranks execute it together,
// and repeat it after an error.
type duty struct {
	// run is the call. If nil, the duty is an exchange: why, mine and all are its
	// arguments.
	run  *running
	why  purpose
	mine []byte
	all  [][]byte
}

// waits reports whether an error means that ranks are missing in a Barrier, which completes
// once they call it.
func (d *duty) waits(err error) bool {
	return d.run != nil && d.run.task.Kind == plan.Barrier && errors.Is(err, ErrTimeout)
}

// call runs a numbered call: it compares the arguments, runs the program, and recovers from
// errors where possible.
func (gd *guard) call(ctx context.Context, r *running) error {
	// A Barrier that was interrupted is continued when it is called again: other ranks may
	// still be in it.
	again := r.resumed && (gd.resumable || gd.lost)
	r.resumed = again && gd.resumable
	gd.resumable = false
	if !again {
		if err := gd.number(); err != nil {
			return err
		}
		gd.seq.ident = gd.identOf(r)
	}
	return gd.serve(ctx, &duty{run: r})
}

// exchange sends the other ranks some bytes and receives as many from each, as a call of
// its own: see messenger.exchange.
func (gd *guard) exchange(ctx context.Context, why purpose, mine []byte, all [][]byte) error {
	gd.resumable = false
	if err := gd.number(); err != nil {
		return err
	}
	gd.seq.ident = gd.seq.intern(controlFrame(why))
	return gd.serve(ctx, &duty{why: why, mine: mine, all: all})
}

// skip counts a call that fails before it begins.
//
// Errors: those of number.
func (gd *guard) skip() error {
	gd.resumable = false
	return gd.number()
}

// identOf returns the arguments of a call.
func (gd *guard) identOf(r *running) *ident {
	p := r.prepared
	if p.ident == nil || p.ident.age != gd.seq.age {
		p.ident = gd.seq.intern(frameOf(&r.task, r.plan.Algorithm))
	}
	return p.ident
}

// number begins the next call.
//
// Errors: a RetryError for a call that has lapsed.
func (gd *guard) number() error {
	gd.keeper.has = false // the next call copies its source again
	if gd.seq.next() {
		return &RetryError{Call: gd.seq.call, Rank: gd.ahead, Because: "had already completed it when the ranks recovered"}
	}
	return nil
}

// serve runs a duty, and repeats it after errors.
func (gd *guard) serve(ctx context.Context, d *duty) error {
	if err := gd.watch.stop(); errors.Is(err, ErrClosed) {
		return err
	}
	if gd.watch.halted.Load() != nil {
		gd.watch.unhalt()
	}
	gd.watch.begin(gd.seq.call, &gd.seq.ident.name)
	defer gd.watch.end()
	for tries := 0; ; {
		at, err := gd.once(ctx, d, tries)
		if err == nil {
			return nil
		}
		if at != fresh && !d.waits(err) {
			tries++
		}
		if !gd.recoverable(ctx, d, at, err) {
			return err
		}
		over, err := gd.recover(ctx, d, at, tries, err)
		if over || err != nil {
			return err
		}
		tries = max(tries, gd.tries)
		if d.run != nil {
			d.run.report.Retries = tries
			d.run.resumed = false
		}
	}
}

// once tries a duty once, and returns the stage reached.
func (gd *guard) once(ctx context.Context, d *duty, tries int) (stage, error) {
	if gd.lost {
		return fresh, errLost
	}
	if err := gd.linked(); err != nil {
		return fresh, err
	}
	if d.run == nil {
		return comparing, gd.messages.exchange(ctx, d.why, d.mine, d.all)
	}
	if err := gd.compare(ctx, d.run); err != nil {
		return comparing, err
	}
	if err := gd.keeper.keep(ctx, d.run, tries); err != nil {
		return comparing, err
	}
	if err := gd.dispatcher.attempt(ctx, d.run); err != nil {
		return started, err
	}
	return gd.conclude(ctx, d.run)
}

// conclude ends a call after our result has arrived. If ranks have sent without copying,
// the result is valid only if no rank has given up, and perhaps modified the memory it
// sent, before all ranks had received it. A rank that leaves the first settle knows that
// all have received theirs, and a rank that leaves the second knows that all know.
func (gd *guard) conclude(ctx context.Context, r *running) (stage, error) {
	if r.zeroCopy {
		for range 2 {
			if err := gd.messages.settle(ctx); err != nil {
				return started, err
			}
		}
	}
	if gd.settles(r) {
		return settling, gd.messages.settle(ctx)
	}
	return settling, nil
}

// linked checks that all links exist, where ranks write to each other's memory: counters do
// not reveal that a rank has given up a call, or has lost us.
//
// Errors: fabric.ErrLink.
func (gd *guard) linked() error {
	if gd.fabric.Signals() == nil {
		return nil
	}
	for r := range gd.fabric.Size() {
		if plan.Rank(r) == gd.fabric.Rank() {
			continue
		}
		if _, err := gd.fabric.Link(plan.Rank(r)).TrySend(nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// settles reports whether a call over links ends with settle.
func (gd *guard) settles(r *running) bool {
	return gd.opts.Retry > 0 && gd.fabric.Size() > 1 && (r.report.Path == pathStream || r.report.Path == pathStaged) && r.task.Kind != plan.Barrier &&
		r.total() >= uint64(gd.opts.Settle)
}

// compare compares the arguments of a call between the ranks, if Options.Check requires it.
//
// Errors: an InconsistentError, at every rank and before any element moves.
func (gd *guard) compare(ctx context.Context, r *running) error {
	if gd.opts.Check == CheckOff || gd.fabric.Size() == 1 || gd.seq.ident.agreed && gd.opts.Check == CheckFirst {
		return nil
	}
	// A Barrier has no arguments, and an interrupted one can be continued: frames that some
	// ranks have already sent would be in the way.
	if r.task.Kind == plan.Barrier {
		return nil
	}
	if err := gd.messages.exchange(ctx, forCall, gd.seq.ident.frame[:], gd.frames); err != nil {
		return err
	}
	for r := range gd.frames {
		theirs := frame(gd.frames[r])
		if diff := differences(&gd.seq.ident.frame, &theirs); diff != nil {
			return &InconsistentError{Call: gd.seq.call, Rank: plan.Rank(r), Fields: diff}
		}
	}
	gd.seq.agree()
	return nil
}

// recoverable reports whether an error requires recovery. These do not: an error that all
// ranks return, a Barrier that can be continued, and a context that has ended.
func (gd *guard) recoverable(ctx context.Context, d *duty, at stage, err error) bool {
	_, different := errors.AsType[*InconsistentError](err)
	if gd.fabric.Size() == 1 || errors.Is(err, ErrClosed) || different {
		return false
	}
	if d.run != nil && d.run.task.Kind == plan.Barrier && at == started {
		// The counters show which ranks are missing, and nothing was sent.
		late, timedOut := errors.AsType[*TimeoutError](err)
		if ctx.Err() != nil || timedOut && late.Missing != nil {
			gd.resumable = true
			return false
		}
	}
	if ctx.Err() != nil {
		gd.lost = true
		return false
	}
	return true
}

// recover makes the links anew after a try that has failed at a stage, and applies the rule of
// recovery. tries includes that one. It returns nil if the duty is to be repeated, and over if
// it has succeeded.
//
// Errors: fabric.ErrLink for ranks that have ended; ErrTimeout for ranks that do not take
// part; ErrRetry; ErrInconsistent.
func (gd *guard) recover(ctx context.Context, d *duty, at stage, tries int, cause error) (over bool, err error) {
	gd.lost = true
	gd.opts.Logger.Warn("an error occurred; the ranks recover from it",
		zap.Int("rank", int(gd.fabric.Rank())), zap.Uint32("number", gd.seq.call), zap.String("call", gd.seq.ident.name), zap.Error(cause))
	mine := standing{
		call: gd.seq.call, at: at, again: verdictOn(cause, at, d.run == nil || gd.keeper.repeatable(d.run)),
		tries: uint16(min(tries, 1<<16-1)), counter: gd.sync.reached(), frame: gd.seq.ident.frame,
	}
	if d.waits(cause) {
		// All ranks take part now, so the Barrier can complete.
		mine.again = canAgain
	}
	all, err := gd.recovery.gather(ctx, mine, cause)
	if err != nil && at == settling && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		// The result is complete. A rank that still needed ours would have taken part.
		return true, nil
	}
	if err != nil {
		return false, err
	}
	gd.lost = false
	// The ranks may be in different calls, so the set of compared arguments is unknown:
	// they compare all arguments again.
	gd.seq.forget()
	gd.seq.ident = gd.seq.intern(gd.seq.ident.frame)
	gd.tries = 0
	for _, s := range all {
		gd.sync.base = max(gd.sync.base, s.counter)
		if s.call == gd.seq.call {
			gd.tries = max(gd.tries, int(s.tries))
		}
	}
	gd.watch.unhalt()
	ruling := rule(all, gd.fabric.Rank(), gd.opts.Retry)
	gd.seq.apply(ruling)
	gd.ahead = ruling.ahead
	if ruling.outcome == fails {
		return false, refusal(all, gd.fabric.Rank(), ruling, cause)
	}
	return ruling.outcome == succeeds, nil
}
