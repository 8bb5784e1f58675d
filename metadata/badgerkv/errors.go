package badgerkv

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
)

// ErrLocked says that another process has the directory open.
var ErrLocked = errors.New("badgerkv: directory is in use by another process")

// LockedError tells which directory is in use, and by which process. It matches
// ErrLocked.
type LockedError struct {
	Dir string
	PID int // of the process that has it open; 0 when that is not known
}

// Error names the directory and the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("badgerkv: %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("badgerkv: %s is in use by process %d", e.Dir, e.PID)
}

// Is says that a LockedError is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// CorruptError says that Badger cannot open what is in the directory. It
// matches metadata.ErrCorrupt.
type CorruptError struct {
	Dir string
	Err error // as Badger says it

	held string // what Badger calls Dir
}

// Error names the directory and the cause.
func (e *CorruptError) Error() string {
	cause := e.Err.Error()
	if e.held != "" {
		cause = strings.ReplaceAll(cause, e.held, e.Dir)
	}
	return fmt.Sprintf("badgerkv: cannot open the store in %s: %s", e.Dir, cause)
}

// Is says that a CorruptError is metadata.ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == metadata.ErrCorrupt }

// Unwrap returns what Badger said.
func (e *CorruptError) Unwrap() error { return e.Err }
