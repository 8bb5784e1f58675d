// Package judge holds the checks of the chaos test: each takes the requests to a cluster and
// its answers, and returns those that no correct execution explains.
//
// An operation that ends with an error may or may not have happened. A check leaves open what
// it cannot decide; every violation that it reports is an error of the cluster.
//
// # Lock order
//
// Each of Keys and Publications has one lock, and neither calls the other.
package judge

// Violation is a property that does not hold.
type Violation struct {
	// Property is one of a few words, such as "lost publication".
	Property string
	// Text names the operations that prove it.
	Text string
}

// String names the property and the operations.
func (v Violation) String() string { return v.Property + ": " + v.Text }

// Outcome is the caller's knowledge of the result of an operation.
type Outcome int

// The outcomes. Unknown, the zero value, applies to every operation that ended with an error or
// was killed.
const (
	Unknown Outcome = iota
	Done
)
