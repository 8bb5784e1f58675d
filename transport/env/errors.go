package env

import (
	"errors"
	"fmt"
)

// ErrValue reports an invalid value: an InvalidError.
var ErrValue = errors.New("env: invalid value")

// InvalidError reports a value that a variable can't have. It is ErrValue.
type InvalidError struct {
	// Variable is the name that the user has set, or the key of a group's
	// setting.
	Variable string
	Value    string
	Expected string
}

// Error returns a message in the format of HCOMM's EI0001.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("EI0001: Value %.200s for environment variable %s is invalid. Expected value: %s.",
		e.Value, e.Variable, e.Expected)
}

// Is makes the error match ErrValue.
func (e *InvalidError) Is(target error) bool { return target == ErrValue }
