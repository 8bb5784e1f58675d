package collective

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// What callers tell apart, beside those of plan, fabric and elem.
var (
	// ErrArgument is a call that can't be, whatever the other ranks say.
	ErrArgument = errors.New("collective: argument not usable")
	// ErrInconsistent is ranks that ask for different things: a
	// InconsistentError.
	ErrInconsistent = errors.New("collective: ranks don't agree")
	// ErrTimeout is a rank that was waited for in vain.
	ErrTimeout = errors.New("collective: timeout")
	// ErrRetry reports a call that failed and is not repeated, as a RetryError. The
	// rank continues with its next call.
	ErrRetry = errors.New("collective: not done again")
	// ErrSuspended is a group that is suspended.
	ErrSuspended = errors.New("collective: suspended")
	// ErrClosed is a group that is closed.
	ErrClosed = errors.New("collective: closed")
)

// FieldDifference is an argument or option that two ranks have given
// differently.
type FieldDifference struct {
	// Field is "kind", "count", "type", "op", "root", "strict" or "algorithm" of
	// a call, or the name of an option.
	Field  string
	Local  string
	Remote string
}

// InconsistentError is ranks that ask for different things. It is
// ErrInconsistent, and every rank gets it.
type InconsistentError struct {
	// Call is the number of the call, from 1; 0 is New.
	Call uint32
	// Rank is the lowest one that differs from us.
	Rank   plan.Rank
	Fields []FieldDifference
}

// Error names every field with both values.
func (e *InconsistentError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "collective: call %d: rank %d does not agree: ", e.Call, e.Rank)
	if e.Call == 0 {
		b.Reset()
		fmt.Fprintf(&b, "collective: rank %d has other options: ", e.Rank)
	}
	for i, f := range e.Fields {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s is %s here and %s there", f.Field, f.Local, f.Remote)
	}
	return b.String()
}

// Is makes the error ErrInconsistent.
func (e *InconsistentError) Is(target error) bool { return target == ErrInconsistent }

// OutOfStepError is a rank that is not where we are. It is ErrInconsistent.
type OutOfStepError struct {
	Peer plan.Rank
	Call uint32
	// What says what it does.
	What string
}

// Error says who is where.
func (e *OutOfStepError) Error() string {
	return fmt.Sprintf("collective: call %d: rank %d %s", e.Call, e.Peer, e.What)
}

// Is makes the error ErrInconsistent.
func (e *OutOfStepError) Is(target error) bool { return target == ErrInconsistent }

// TimeoutError is ranks that were waited for in vain. It is ErrTimeout.
type TimeoutError struct {
	// Rank has waited For the peers of its step.
	Rank plan.Rank
	For  []plan.Rank
	// Missing are the ranks that are in no call at all, where that was found out:
	// those that the others, waiting for each other, all wait for.
	Missing []plan.Rank
	// Call, Step and What say where.
	Call  uint32
	Step  int
	What  string
	After time.Duration
}

// Error names all of them.
func (e *TimeoutError) Error() string {
	text := fmt.Sprintf("collective: %s (call %d): rank %d has waited %v in step %d for ranks %v", e.What, e.Call, e.Rank, e.After, e.Step, e.For)
	if len(e.Missing) > 0 {
		text += fmt.Sprintf("; ranks %v are missing", e.Missing)
	}
	return text
}

// Is makes the error ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// RetryError is a call that is not done again after something went wrong. It is
// ErrRetry, and also what went wrong here.
type RetryError struct {
	Call uint32
	// Rank is the one because of which it is not done again, and Because says
	// why.
	Rank    plan.Rank
	Because string
	// Err is nil for a call that did not begin, since the other ranks had ended it.
	Err error
}

// Error names the rank and the reason.
func (e *RetryError) Error() string {
	text := fmt.Sprintf("collective: call %d is not done again: rank %d %s", e.Call, e.Rank, e.Because)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// Is makes the error ErrRetry.
func (e *RetryError) Is(target error) bool { return target == ErrRetry }

// Unwrap returns what went wrong here.
func (e *RetryError) Unwrap() error { return e.Err }
