package fabric

import (
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// LinkError reports that a link was lost. It matches ErrLink.
type LinkError struct {
	Peer plan.Rank
	Err  error
}

// Error names the peer and the cause.
func (e *LinkError) Error() string { return fmt.Sprintf("link with rank %d: %v", e.Peer, e.Err) }

// Is makes the error ErrLink.
func (e *LinkError) Is(target error) bool { return target == ErrLink }

// Unwrap returns the cause.
func (e *LinkError) Unwrap() error { return e.Err }

// MissingError reports ranks that did not come. It matches ErrLink.
type MissingError struct {
	// Ranks are in ascending order.
	Ranks []plan.Rank
	Err   error
}

// Error lists the ranks.
func (e *MissingError) Error() string { return fmt.Sprintf("ranks %v are missing: %v", e.Ranks, e.Err) }

// Is makes the error ErrLink.
func (e *MissingError) Is(target error) bool { return target == ErrLink }

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }
