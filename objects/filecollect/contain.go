package filecollect

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a defect of this program that has come to light in a collective.
// It ends that collective, whose files are what they were, and not the daemon,
// which has other files to look after.
type PanicError struct {
	// Value is the value of the panic, and Stack its place: they are for the log of
	// the node, not for others.
	Value any
	Stack []byte
}

// Error says as much as others may know.
func (e *PanicError) Error() string {
	return "collect: it has failed by a defect of this program; the log of the node has it"
}

// Contained runs fn, and makes a panic in it a PanicError.
func Contained(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// String returns the text for the log.
func (e *PanicError) String() string { return fmt.Sprintf("%v\n%s", e.Value, e.Stack) }
