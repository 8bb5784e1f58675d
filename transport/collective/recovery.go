package collective

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// recovery brings the ranks together after a failed try: it makes the links anew, and
// exchanges the standings, to which rule is then applied. It belongs to one group; Group.mu
// guards it.
type recovery struct {
	fabric   fabric.Fabric
	watch    *watchdog
	seq      *sequence
	messages *messenger
	timeout  time.Duration
}

// gather makes the links anew and exchanges standings with all ranks.
func (v *recovery) gather(ctx context.Context, mine standing, cause error) ([]standing, error) {
	const attempts = 4
	said := make([]byte, standingSize)
	mine.put(said)
	heard := rows(v.fabric.Size(), standingSize)
	var err error
	for range attempts {
		if err = v.reform(ctx, mine.at, cause); err != nil {
			return nil, err
		}
		if err = v.messages.exchange(ctx, forState, said, heard); !errors.Is(err, fabric.ErrLink) {
			break
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

// looks divides the limit of reform into attempts. As ranks give up at different times, the
// last one to do so may find none of the others: the ranks reported missing are those that
// were absent in every attempt.
const looks = 8

// reform makes the links anew. The watchdog is inactive meanwhile.
//
// Errors: fabric.ErrLink, as a MissingError, for ranks that have ended; a TimeoutError for
// ranks that do not come; ErrClosed; the context's.
func (v *recovery) reform(ctx context.Context, at stage, cause error) error {
	w := v.watch
	limit := v.limit(at)
	w.end()
	defer func() { w.begin(v.seq.call, &v.seq.ident.name) }()
	late := &TimeoutError{Rank: v.fabric.Rank(), Call: v.seq.call, What: v.seq.ident.name, After: limit}
	errors.As(cause, &late)
	w.unhalt()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	absent := ^uint64(0)
	for within.Err() == nil {
		look, done := context.WithTimeout(within, limit/looks)
		err := v.fabric.Reform(look)
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
			return fmt.Errorf("collective: call %d: %w (after: %w)", v.seq.call, err, cause)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("collective: call %d: %w", v.seq.call, err)
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
// that timed out wraps that error instead: its rank has ended.
func stoppedWaiting(e *fabric.MissingError) bool {
	return e.Err == context.DeadlineExceeded //nolint:errorlint // only the unwrapped error is meant
}

// limit returns how long to wait for the other ranks: the rest of Options.Timeout, since
// they have waited as long. A rank that has its result waits only for ranks that still need
// it.
func (v *recovery) limit(at stage) time.Duration {
	limit := v.timeout
	if at == settling {
		limit = 0
	}
	if since, ok := v.watch.quietSince(); ok {
		limit -= time.Since(since)
	}
	return max(limit, min(grace, v.timeout))
}

// refusal returns the error of a call whose outcome is fails.
func refusal(all []standing, me plan.Rank, r ruling, cause error) error {
	mine, by := &all[me], &all[r.rank]
	why := ""
	switch {
	case r.because == isAhead:
		why = fmt.Sprintf("is already at call %d", by.call)
	case r.because == differs:
		return disagree(all, mine)
	case mine.again == hasFailed:
		return cause
	case r.because == hasTried:
		why = fmt.Sprintf("has tried %d times", by.tries)
	case by.again == hasFailed:
		why = "has an error of its own"
	case by.again == hasOverwritten:
		why = "has overwritten its source (KeepSource keeps a copy)"
	case r.rank == me:
		return cause
	default:
		why = "has waited long enough"
	}
	return &RetryError{Call: mine.call, Rank: r.rank, Because: why, Err: cause}
}

// disagree returns the error of ranks whose arguments differ in one call.
func disagree(all []standing, mine *standing) error {
	for r := range all {
		s := &all[r]
		if s.call != mine.call {
			continue
		}
		if diff := differences(&mine.frame, &s.frame); diff != nil {
			return &InconsistentError{Call: mine.call, Rank: plan.Rank(r), Fields: diff}
		}
	}
	return fmt.Errorf("collective: call %d: %w", mine.call, ErrInconsistent)
}
