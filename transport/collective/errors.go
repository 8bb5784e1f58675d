package collective

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Errors that callers distinguish, in addition to those of plan, fabric and elem.
var (
	// ErrArgument reports a call that is invalid, whatever the other ranks do.
	ErrArgument = errors.New("collective: invalid argument")
	// ErrInconsistent reports ranks that make different calls, as an InconsistentError or
	// an OutOfStepError.
	ErrInconsistent = errors.New("collective: ranks don't agree")
	// ErrTimeout reports a rank that did not come in time, as a TimeoutError.
	ErrTimeout = errors.New("collective: timeout")
	// ErrRetry reports a call that failed and is not repeated, as a RetryError. The rank
	// continues with its next call.
	ErrRetry = errors.New("collective: call not repeated")
	// ErrSuspended reports that the group is suspended.
	ErrSuspended = errors.New("collective: suspended")
	// ErrClosed reports that the group is closed.
	ErrClosed = errors.New("collective: closed")
)

// FieldDifference is an argument or option that differs between two ranks.
type FieldDifference struct {
	// Field is "kind", "count", "type", "op", "root", "strict" or "algorithm" for a call,
	// or the name of an option.
	Field  string
	Local  string
	Remote string
}

// InconsistentError reports ranks that make different calls. It matches ErrInconsistent,
// and every rank gets it.
type InconsistentError struct {
	// Call is the number of the call, from 1; 0 for New.
	Call uint32
	// Rank is the lowest rank that differs from ours.
	Rank   plan.Rank
	Fields []FieldDifference
}

// Error lists every field with both values.
func (e *InconsistentError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "collective: call %d: rank %d disagrees: ", e.Call, e.Rank)
	if e.Call == 0 {
		b.Reset()
		fmt.Fprintf(&b, "collective: rank %d has different options: ", e.Rank)
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

// OutOfStepError reports a peer that is not in the same step. It matches ErrInconsistent.
type OutOfStepError struct {
	Peer plan.Rank
	Call uint32
	// What describes what the peer does.
	What string
}

// Error names the peer and what it does.
func (e *OutOfStepError) Error() string {
	return fmt.Sprintf("collective: call %d: rank %d %s", e.Call, e.Peer, e.What)
}

// Is makes the error ErrInconsistent.
func (e *OutOfStepError) Is(target error) bool { return target == ErrInconsistent }

// TimeoutError reports ranks that did not come in time. It matches ErrTimeout.
type TimeoutError struct {
	// Rank has waited for the peers For of its step.
	Rank plan.Rank
	For  []plan.Rank
	// Missing lists the ranks that are in no call at all, if known: those for which the
	// other ranks wait.
	Missing []plan.Rank
	// Call, Step and What describe where the rank waited.
	Call  uint32
	Step  int
	What  string
	After time.Duration
}

// Error names the rank, the step and the missing ranks.
func (e *TimeoutError) Error() string {
	text := fmt.Sprintf("collective: %s (call %d): rank %d has waited %v in step %d for ranks %v", e.What, e.Call, e.Rank, e.After, e.Step, e.For)
	if len(e.Missing) > 0 {
		text += fmt.Sprintf("; ranks %v are missing", e.Missing)
	}
	return text
}

// Is makes the error ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// RetryError reports a call that is not repeated after an error. It matches ErrRetry, and
// also the local error.
type RetryError struct {
	Call uint32
	// Rank is the rank that prevents the repetition, and Because the reason.
	Rank    plan.Rank
	Because string
	// Err is nil for a call that did not begin because the other ranks had already ended
	// it.
	Err error
}

// Error names the rank and the reason.
func (e *RetryError) Error() string {
	text := fmt.Sprintf("collective: call %d is not repeated: rank %d %s", e.Call, e.Rank, e.Because)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// Is makes the error ErrRetry.
func (e *RetryError) Is(target error) bool { return target == ErrRetry }

// Unwrap returns the local error.
func (e *RetryError) Unwrap() error { return e.Err }
