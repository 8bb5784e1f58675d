package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// errLost is links that were lost before the call.
var errLost = fmt.Errorf("collective: links were lost in an earlier call: %w", fabric.ErrLink)

// mishap is how a try has ended.
type mishap struct {
	at stage
	// tries counts this one.
	tries int
	cause error
}

// mendable says whether the ranks have to come together after an error. What is
// left alone is an error that all ranks get, a Barrier that goes on where it
// was, and a caller who does not wait any longer.
func (g *Group) mendable(ctx context.Context, d *duty, at stage, err error) bool {
	var different *InconsistentError
	if g.Size() == 1 || errors.Is(err, ErrClosed) || errors.As(err, &different) {
		return false
	}
	if d.run != nil && d.run.task.Kind == plan.Barrier && at == begun {
		// By counters it is known who is missing, and nothing was sent.
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

// standing is where a rank is after a mishap:
//
//	0   call
//	4   stage
//	5   1 if it can do the call again, 2 if it will not
//	6   tries
//	8   counter of Signals
//	16  frame
type standing struct {
	call    uint32
	at      stage
	again   verdict
	tries   uint16
	counter uint64
	frame   frame
}

// verdict is what a rank says about doing a call again.
type verdict uint8

const (
	canAgain verdict = iota + 1
	// hasFailed is an error of its own, which would come again.
	hasFailed
	// hasTimedOut has waited long enough.
	hasTimedOut
	// hasOverwritten is a source that is gone.
	hasOverwritten
)

const standingSize = 16 + frameSize

func (s *standing) put(p []byte) {
	binary.LittleEndian.PutUint32(p, s.call)
	p[4], p[5] = byte(s.at), byte(s.again)
	binary.LittleEndian.PutUint16(p[6:], s.tries)
	binary.LittleEndian.PutUint64(p[8:], s.counter)
	copy(p[16:], s.frame[:])
}

func readStanding(p []byte) standing {
	return standing{
		call: binary.LittleEndian.Uint32(p), at: stage(p[4]), again: verdict(p[5]),
		tries: binary.LittleEndian.Uint16(p[6:]), counter: binary.LittleEndian.Uint64(p[8:]),
		frame: frame(p[16 : 16+frameSize]),
	}
}

// mend brings the ranks together after a mishap. Nil is that the duty is done
// again; over, that it is done after all.
//
// Errors: fabric.ErrLink for ranks that are gone; ErrTimeout for those that don't
// come; ErrRetry; ErrInconsistent. After the latter two all ranks are at the
// same call again.
func (g *Group) mend(ctx context.Context, d *duty, m mishap) (over bool, err error) {
	gd := &g.guard
	gd.lost = true
	g.opts.Logger.Warn("the ranks come together after an error",
		zap.Int("rank", int(g.Rank())), zap.Uint32("number", gd.call), zap.String("call", gd.ident.name), zap.Error(m.cause))
	mine := standing{
		call: gd.call, at: m.at, again: g.verdict(d, m), tries: uint16(min(m.tries, 1<<16-1)),
		counter: gd.base, frame: gd.ident.frame,
	}
	if s := g.fabric.Signals(); s != nil {
		mine.counter = max(mine.counter, s.Get(g.Rank()))
	}
	all, err := g.gatherStandings(ctx, mine, m.cause)
	if err != nil && m.at == settling && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		// Our result is whole. Who still needed us would have come.
		return true, nil
	}
	if err != nil {
		return false, err
	}
	gd.lost = false
	// Who had compared which arguments is not known: the ranks may be in different
	// calls. So all compare all of them anew.
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
	return g.decide(mine, all, m.cause)
}

// verdict is what we say about doing the duty again.
func (g *Group) verdict(d *duty, m mishap) verdict {
	switch {
	case errors.Is(m.cause, ErrTimeout):
		return hasTimedOut
	case !errors.Is(m.cause, fabric.ErrLink) && !errors.Is(m.cause, ErrInconsistent):
		return hasFailed
	case m.at >= begun && !g.repeatable(d.run):
		return hasOverwritten
	}
	return canAgain
}

// gatherStandings makes the links anew and asks all ranks where they are.
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

// grace is how long ranks have to come together, however long they have waited
// before: those that are in a call come at once.
const grace = time.Second

// looks is how often reform looks who is there. Ranks give up one after the
// other, so that who is the last to do it finds nobody: missing are those that
// never were there.
const looks = 8

// reform makes the links anew. The watchdog does not look meanwhile.
//
// Errors: fabric.ErrLink, as a MissingError, for ranks that are gone; a
// TimeoutError for those that don't come; ErrClosed; the context's.
func (g *Group) reform(ctx context.Context, at stage, cause error) error {
	w := &g.guard.watch
	limit := g.patience(at)
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
		case errors.As(err, &missing) && (ended != nil || impatient(missing)):
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

// impatient says that the fabric has not waited any longer. A time that ran out
// while a rank was called back is inside of other errors: that rank is gone.
func impatient(e *fabric.MissingError) bool {
	return e.Err == context.DeadlineExceeded //nolint:errorlint // what is wrapped is something else
}

// patience is how long we wait for ranks to come together: what is left of
// Options.Timeout, since the others have waited as long as we have. Who has his
// result only waits for those that still need him.
func (g *Group) patience(at stage) time.Duration {
	limit := g.opts.Timeout
	if at == settling {
		limit = 0
	}
	if since, ok := g.guard.watch.quietSince(); ok {
		limit -= time.Since(since)
	}
	return max(limit, min(grace, g.opts.Timeout))
}

// decide says what becomes of a duty, from what all ranks say: the same at all
// of them.
func (g *Group) decide(mine standing, all []standing, cause error) (over bool, err error) {
	latest := slices.MaxFunc(all, func(a, b standing) int { return int(a.call) - int(b.call) }).call
	gd := &g.guard
	no := g.objection(all, latest, cause)
	// Whatever fails counts as made, so that all ranks go on with the same
	// number.
	gd.call = latest
	switch {
	case mine.call == latest:
		return false, no
	case no == nil:
		gd.call = latest - 1
	}
	if mine.at == settling {
		return true, nil // who is further has left settle, so everybody had what he was to get
	}
	ahead := slices.IndexFunc(all, func(s standing) bool { return s.call == latest })
	return false, &RetryError{Call: mine.call, Rank: plan.Rank(ahead), Because: fmt.Sprintf("is at call %d already", latest), Err: cause}
}

// objection is why a call is not done again by those that are in it: an error at
// every rank, or at none.
func (g *Group) objection(all []standing, call uint32, cause error) error {
	mine := &all[g.Rank()]
	for r := range all {
		s := &all[r]
		if s.call != call {
			continue
		}
		for other := range all {
			if o := &all[other]; o.call == call && o.frame != s.frame {
				return g.disagree(all, call)
			}
		}
		why := ""
		switch {
		case s.again == hasFailed:
			why = "has an error of its own"
		case s.again == hasTimedOut:
			if plan.Rank(r) == g.Rank() {
				return cause
			}
			why = "has waited long enough"
		case s.again == hasOverwritten:
			why = "has overwritten its source (KeepSource keeps a copy)"
		case int(s.tries) > max(g.opts.Retry, 0):
			why = fmt.Sprintf("has tried %d times", s.tries)
		default:
			continue
		}
		if mine.again == hasFailed && mine.call == call {
			return cause
		}
		return &RetryError{Call: call, Rank: plan.Rank(r), Because: why, Err: cause}
	}
	return nil
}

// disagree is the error of ranks that are in different calls of one number.
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
