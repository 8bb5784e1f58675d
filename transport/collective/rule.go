package collective

import (
	"encoding/binary"
	"errors"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// This file contains the rule of recovery, without communication: guard.recover applies it,
// and a test checks it against every order of events.

// tally numbers the calls of a rank. The number of a call is its position among all calls
// of the group, at every rank and whatever its outcome: ranks compare numbers to detect
// that they are in different calls.
type tally struct {
	// call is the number of the current call, or of the last one between calls.
	call uint32
	// lapsed counts the following calls that the other ranks have ended already.
	lapsed uint32
}

// next begins the next call. It reports whether the call has lapsed: the other ranks
// no longer take part in it, so it fails at once.
func (t *tally) next() (lapsed bool) {
	t.call++
	if t.lapsed == 0 {
		return false
	}
	t.lapsed--
	return true
}

// apply records which calls lapse by a ruling.
func (t *tally) apply(r ruling) {
	t.lapsed = 0
	if later(r.last, t.call) {
		t.lapsed = r.last - t.call
	}
}

// later reports whether call a comes after call b. Numbers wrap around.
func later(a, b uint32) bool { return int32(a-b) > 0 }

// stage is the progress of a rank in a duty.
type stage uint8

const (
	// fresh: not begun, since links were lost before.
	fresh stage = iota + 1
	// comparing: no element has been sent or received.
	comparing
	// started: elements may have been sent or received.
	started
	// settling: the rank has received everything.
	settling
)

// verdict reports whether a rank can repeat its call, or why not.
type verdict uint8

const (
	canAgain verdict = iota + 1
	// hasFailed: a local error, which a repetition would not cure.
	hasFailed
	// hasTimedOut: the rank has waited for Options.Timeout.
	hasTimedOut
	// hasOverwritten: the result has overwritten the source.
	hasOverwritten
)

// verdictOn returns the verdict of a rank whose try failed at a stage: a link was lost, a peer
// is in another call, a peer did not come in time, or it has any other error of its own. kept
// reports that the source is unchanged, or can be restored.
func verdictOn(cause error, at stage, kept bool) verdict {
	switch {
	case errors.Is(cause, ErrTimeout):
		return hasTimedOut
	case !errors.Is(cause, fabric.ErrLink) && !errors.Is(cause, ErrInconsistent):
		return hasFailed
	case at >= started && !kept:
		return hasOverwritten
	}
	return canAgain
}

// standing describes a rank after a failed try, as exchanged between the ranks:
//
//	0   call
//	4   stage
//	5   verdict
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

// outcome is the outcome of recovery for the call of a rank.
type outcome uint8

const (
	// repeats: the rank repeats the call from its source.
	repeats outcome = iota + 1
	// succeeds: the call returns nil, since the rank has its result and no other rank
	// needs it.
	succeeds
	// fails: the call returns an error.
	fails
)

// reason is the reason why a call fails.
type reason uint8

const (
	// isAhead: a rank is in a later call.
	isAhead reason = iota + 1
	// differs: a rank has other arguments in the same call.
	differs
	// cannot: a rank's verdict is not canAgain.
	cannot
	// hasTried: a rank has no retries left.
	hasTried
)

// ruling holds the outcome of recovery for one rank.
type ruling struct {
	outcome outcome
	// because and rank are the reason of a failure, and the rank that causes it.
	because reason
	rank    plan.Rank
	// last is the last call that no rank continues: calls up to it lapse. ahead is a rank
	// in the latest call.
	last  uint32
	ahead plan.Rank
}

// rule decides the outcome for the call of rank me from the standings of all ranks.
// The ranks in the latest call repeat it, or it fails at all of them. No rank continues
// an earlier call: it fails at a rank that is in it, and the calls between that and the
// latest lapse.
func rule(all []standing, me plan.Rank, retries int) ruling {
	ahead := 0
	for r := range all {
		if later(all[r].call, all[ahead].call) {
			ahead = r
		}
	}
	call := all[ahead].call
	r := ruling{outcome: repeats, last: call - 1, ahead: plan.Rank(ahead)}
	if by, why := objection(all, call, retries); why != 0 {
		r.outcome, r.because, r.rank, r.last = fails, why, by, call
	}
	switch mine := &all[me]; {
	case mine.call == call:
	case mine.at == settling:
		// A rank in a later call has left settle, so every rank has its result.
		r.outcome = succeeds
	default:
		r.outcome, r.because, r.rank = fails, isAhead, r.ahead
	}
	return r
}

// objection returns the rank that prevents the repetition of a call, and the reason.
// The reason is 0 if the call can be repeated.
func objection(all []standing, call uint32, retries int) (plan.Rank, reason) {
	first := -1
	for r := range all {
		switch {
		case all[r].call != call:
		case first < 0:
			first = r
		case all[r].frame != all[first].frame:
			return plan.Rank(r), differs
		}
	}
	for r := range all {
		switch s := &all[r]; {
		case s.call != call:
		case s.again != canAgain:
			return plan.Rank(r), cannot
		case int(s.tries) > max(retries, 0):
			return plan.Rank(r), hasTried
		}
	}
	return 0, 0
}
