// Package judge holds the checks of the chaos test: each takes what was asked
// of a cluster and what it answered, and returns what can't be explained.
//
// An operation that ends with an error may have happened or not. What a check
// can't tell it leaves open; what it reports has no innocent explanation.
//
// # Lock order
//
// Each of Keys and Publications has one lock, and neither calls the other.
package judge

// Violation is a property that does not hold.
type Violation struct {
	// Property is one of a few words, such as "lost publication".
	Property string
	// Text names the operations that show it.
	Text string
}

// String names the property and the operations.
func (v Violation) String() string { return v.Property + ": " + v.Text }

// Outcome tells what the caller knows of an operation.
type Outcome int

// The outcomes. Unknown is that of every operation that ended with an error or
// was killed, and the zero value.
const (
	Unknown Outcome = iota
	Done
)
