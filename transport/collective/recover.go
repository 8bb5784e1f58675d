package collective

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// errLost reports that links were lost before the call.
var errLost = fmt.Errorf("collective: links were lost in an earlier call: %w", fabric.ErrLink)

// failedTry describes how a try has ended.
type failedTry struct {
	at stage
	// tries counts this one.
	tries int
	cause error
}

// recoverable reports whether an error requires recovery. These do not: an error that
// all ranks return, a Barrier that can be continued, and a context that has ended.
func (g *Group) recoverable(ctx context.Context, d *duty, at stage, err error) bool {
	var different *InconsistentError
	if g.Size() == 1 || errors.Is(err, ErrClosed) || errors.As(err, &different) {
		return false
	}
	if d.run != nil && d.run.task.Kind == plan.Barrier && at == begun {
		// The counters tell which ranks are missing, and nothing was sent.
		var late *TimeoutError
		if ctx.Err() != nil || errors.As(err, &late) && late.Missing != nil {
			g.guard.resumable = true
			return false
		}
	}
	if ctx.Err() != nil {
		g.guard.lost = true
		return false
	}
	return true
}

// recover makes the links anew after a failed try, and applies the rule of recovery. It
// returns nil if the duty is to be repeated, and over if it has succeeded.
//
// Errors: fabric.ErrLink for ranks that have ended; ErrTimeout for ranks that do not
// take part; ErrRetry; ErrInconsistent.
func (g *Group) recover(ctx context.Context, d *duty, m failedTry) (over bool, err error) {
	gd := &g.guard
	gd.lost = true
	g.opts.Logger.Warn("the ranks recover from an error",
		zap.Int("rank", int(g.Rank())), zap.Uint32("number", gd.call), zap.String("call", gd.ident.name), zap.Error(m.cause))
	mine := standing{
		call: gd.call, at: m.at, again: verdictOn(failureOf(m.cause), m.at, g.repeatable(d.run)), tries: uint16(min(m.tries, 1<<16-1)),
		counter: gd.base, frame: gd.ident.frame,
	}
	if d.waits(m.cause) {
		// All ranks take part now, so the Barrier can complete.
		mine.again = canAgain
	}
	if s := g.fabric.Signals(); s != nil {
		mine.counter = max(mine.counter, s.Get(g.Rank()))
	}
	all, err := g.gatherStandings(ctx, mine, m.cause)
	if err != nil && m.at == settling && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		// The result is complete. A rank that still needed this one would have taken part.
		return true, nil
	}
	if err != nil {
		return false, err
	}
	gd.lost = false
	// The ranks may be in different calls, so what they have compared is not known:
	// they compare all arguments again.
	gd.forget()
	gd.ident = gd.intern(gd.ident.frame)
	gd.tries = 0
	for _, s := range all {
		gd.base = max(gd.base, s.counter)
		if s.call == gd.call {
			gd.tries = max(gd.tries, int(s.tries))
		}
	}
	g.unhalt()
	ruling := rule(all, g.Rank(), g.opts.Retry)
	gd.apply(ruling)
	gd.ahead = ruling.ahead
	if ruling.outcome == fails {
		return false, g.refusal(all, ruling, m.cause)
	}
	return ruling.outcome == succeeds, nil
}

// failureOf classifies the error that has ended a try.
func failureOf(err error) failure {
	switch {
	case errors.Is(err, ErrTimeout):
		return timeFailure
	case errors.Is(err, fabric.ErrLink), errors.Is(err, ErrInconsistent):
		return linkFailure
	}
	return ownFailure
}

// gatherStandings makes the links anew and exchanges standings with all ranks.
func (g *Group) gatherStandings(ctx context.Context, mine standing, cause error) ([]standing, error) {
	const attempts = 4
	said := make([]byte, standingSize)
	mine.put(said)
	heard := make([][]byte, g.Size())
	for i := range heard {
		heard[i] = make([]byte, standingSize)
	}
	var err error
	for range attempts {
		if err = g.reform(ctx, mine.at, cause); err != nil {
			return nil, err
		}
		if err = g.exchange(ctx, forState, said, heard); err == nil {
			break
		}
		if !errors.Is(err, fabric.ErrLink) {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	all := make([]standing, len(heard))
	for i, p := range heard {
		all[i] = readStanding(p)
	}
	return all, nil
}

// grace is the minimum time that ranks wait for each other to recover, however long they
// have waited before: ranks in a call recover at once.
const grace = time.Second

// looks bounds how often, within its limit, reform checks which ranks are there. Ranks
// give up one after the other, so the last one to do it finds none: missing are those
// that never were there.
const looks = 8

// reform makes the links anew. The watchdog does not look meanwhile.
//
// Errors: fabric.ErrLink, as a MissingError, for ranks that are gone; a
// TimeoutError for those that don't come; ErrClosed; the context's.
func (g *Group) reform(ctx context.Context, at stage, cause error) error {
	w := &g.guard.watch
	limit := g.recoveryTimeout(at)
	w.end()
	defer func() { w.begin(g.guard.call, &g.guard.ident.name) }()
	late := &TimeoutError{Rank: g.Rank(), Call: g.guard.call, What: g.guard.ident.name, After: limit}
	errors.As(cause, &late)
	g.unhalt()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	absent := ^uint64(0)
	for within.Err() == nil {
		look, done := context.WithTimeout(within, limit/looks)
		err := g.fabric.Reform(look)
		ended := look.Err()
		done()
		if err == nil {
			return nil
		}
		if stop := w.stop(); errors.Is(stop, ErrClosed) {
			return stop
		}
		var missing *fabric.MissingError
		switch {
		case errors.As(err, &missing) && (ended != nil || stoppedWaiting(missing)):
			absent &= setOf(missing.Ranks)
		case ended == nil && !errors.Is(err, fabric.ErrInterrupted):
			return fmt.Errorf("collective: call %d: %w (after: %w)", g.guard.call, err, cause)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("collective: call %d: %w", g.guard.call, err)
	}
	if late.Missing == nil && absent != ^uint64(0) {
		late.Missing = ranksOf(absent)
	}
	if late.For == nil {
		late.For = late.Missing
	}
	return late
}

// stoppedWaiting reports whether Reform ended at its context's deadline. A reconnection
// that timed out wraps that error: its rank has ended.
func stoppedWaiting(e *fabric.MissingError) bool {
	return e.Err == context.DeadlineExceeded //nolint:errorlint // what is wrapped is something else
}

// recoveryTimeout returns how long to wait for the other ranks: the rest of
// Options.Timeout, since they have waited as long. A rank that has its result waits only
// for ranks that still need it.
func (g *Group) recoveryTimeout(at stage) time.Duration {
	limit := g.opts.Timeout
	if at == settling {
		limit = 0
	}
	if since, ok := g.guard.watch.quietSince(); ok {
		limit -= time.Since(since)
	}
	return max(limit, min(grace, g.opts.Timeout))
}

// refusal returns the error of a call whose outcome is fails.
func (g *Group) refusal(all []standing, r ruling, cause error) error {
	mine, by := &all[g.Rank()], &all[r.rank]
	why := ""
	switch {
	case r.because == isAhead:
		why = fmt.Sprintf("is at call %d already", by.call)
	case r.because == differs:
		return g.disagree(all, mine.call)
	case mine.again == hasFailed:
		return cause
	case r.because == hasTried:
		why = fmt.Sprintf("has tried %d times", by.tries)
	case by.again == hasFailed:
		why = "has an error of its own"
	case by.again == hasOverwritten:
		why = "has overwritten its source (KeepSource keeps a copy)"
	case r.rank == g.Rank():
		return cause
	default:
		why = "has waited long enough"
	}
	return &RetryError{Call: mine.call, Rank: r.rank, Because: why, Err: cause}
}

// disagree returns the error of ranks whose arguments differ in one call.
func (g *Group) disagree(all []standing, call uint32) error {
	mine := &all[g.Rank()]
	for r := range all {
		s := &all[r]
		if s.call != call {
			continue
		}
		if diff := differences(&mine.frame, &s.frame); diff != nil {
			return &InconsistentError{Call: call, Rank: plan.Rank(r), Fields: diff}
		}
	}
	return fmt.Errorf("collective: call %d: %w", call, ErrInconsistent)
}
