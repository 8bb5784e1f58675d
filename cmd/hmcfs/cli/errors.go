package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
)

// The exit codes. docs/cli.md promises them.
const (
	exitOK = 0
	// exitFailure says that something went wrong on the way.
	exitFailure = 1
	// exitUsage is a fault in the flags, the environment or a config file;
	// nothing has been touched.
	exitUsage = 2
	// exitNotMounted is a path that is on no hmcfs mount.
	exitNotMounted = 3
	// exitPartial is a failure of some of several, or lost objects found.
	exitPartial = 4
	// exitProblems is contradictions that fsck found in the records.
	exitProblems = 5
	// exitWrong is a run whose outputs are not what was expected.
	exitWrong = 6
	// exitTimeout is a run whose time was over, as with timeout(1).
	exitTimeout = 124
	// exitSignal and the number of a signal is the end of what that signal
	// stopped: 130 for SIGINT, 143 for SIGTERM.
	exitSignal = 128
)

// codeError is an error with an exit code other than 1.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }

func (e *codeError) Unwrap() error { return e.err }

func usage(err error) error { return &codeError{code: exitUsage, err: err} }

func notMounted(format string, args ...any) error {
	return &codeError{code: exitNotMounted, err: fmt.Errorf(format, args...)}
}

// errSilent ends with a code when everything has been said already.
var errSilent = errors.New("")

// interrupted is the exit code after a signal.
func (a *app) interrupted() int {
	if n := int(a.signal.Load()); n > 0 {
		return exitSignal + n
	}
	return exitFailure
}

func exitCode(err error) int {
	var c *codeError
	var spec *daemon.SpecError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &c):
		return c.code
	case errors.As(err, &spec):
		return exitUsage
	}
	return exitFailure
}

// printError writes one line for each fault.
func printError(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(w, "hmcfs: %s\n", line)
		}
	}
}
