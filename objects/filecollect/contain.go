package filecollect

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a bug in this program that has caused a panic in a collective. It ends that
// collective, whose files remain unchanged, and not the daemon, which serves other files.
type PanicError struct {
	// Value is the value of the panic, and Stack its stack trace: they are for the node's log
	// only.
	Value any
	Stack []byte
}

// Error returns a text without internal details.
func (e *PanicError) Error() string {
	return "collect: failed because of a bug in hmcfs; the log of the node has the details"
}

// Contained runs fn, and converts a panic in it to a PanicError.
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
