package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
)

// The exit codes, as documented in docs/cli.md.
const (
	exitOK = 0
	// exitFailure is a failure during the operation.
	exitFailure = 1
	// exitUsage is an error in the flags, the environment or a config file; nothing has
	// been changed.
	exitUsage = 2
	// exitNotMounted is a path that is not on an hmcfs mount.
	exitNotMounted = 3
	// exitPartial is a failure of some of several items, or lost objects found by fsck.
	exitPartial = 4
	// exitProblems means that fsck found contradictions in the records.
	exitProblems = 5
	// exitWrong is a run whose outputs are not as expected.
	exitWrong = 6
	// exitTimeout is a run that timed out, as with timeout(1).
	exitTimeout = 124
	// exitSignal plus the number of a signal is the exit code after that signal: 130 for
	// SIGINT, 143 for SIGTERM.
	exitSignal = 128
)

// exitRow is a row of the table of exit codes in the documents.
type exitRow struct{ Codes, Meaning string }

// exitCodes returns the exit codes as the documents describe them.
func exitCodes() []exitRow {
	of := func(code int) string { return strconv.Itoa(code) }
	return []exitRow{
		{of(exitOK), "done"},
		{of(exitFailure), "failed; for exist: a key does not exist"},
		{of(exitUsage), "an error in the flags, the environment or a config file; nothing was changed"},
		{of(exitNotMounted), "the path is not on an hmcfs mount"},
		{of(exitPartial), "some of several failed (cp, stat, and all commands for keys), or there are lost objects (fsck)"},
		{of(exitProblems), "fsck found records that contradict each other, and did not repair them all"},
		{of(exitWrong), "run: outputs are not as expected"},
		{of(exitTimeout), "run: timed out"},
		{
			of(exitSignal+int(syscall.SIGINT)) + ", " + of(exitSignal+int(syscall.SIGTERM)),
			"stopped by SIGINT (^C) or SIGTERM; see below for what a copy leaves behind",
		},
	}
}

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

// errSilent ends with an exit code when all messages have been printed already.
var errSilent = errors.New("")

// interrupted returns the exit code after a signal.
func (a *app) interrupted() int {
	if n := int(a.signal.Load()); n > 0 {
		return exitSignal + n
	}
	return exitFailure
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if c, ok := errors.AsType[*codeError](err); ok {
		return c.code
	}
	if _, ok := errors.AsType[*daemon.SpecError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// kindError is an error of a kind that its text does not repeat.
type kindError struct {
	text string
	kind error
}

func (e *kindError) Error() string { return e.text }

func (e *kindError) Unwrap() error { return e.kind }

// readable removes from an error what only programs need: the packages of kinds of errors, and a kind that
// follows a remedy.
func readable(text string) string {
	const kind = `(?:metadata|objects|devices|owner|transport): `
	text = regexp.MustCompile(`(; [^;]*): `+kind+`[^:;]*$`).ReplaceAllString(text, "$1")
	return regexp.MustCompile(`: `+kind).ReplaceAllString(text, ": ")
}

// printError prints one line for each error.
func printError(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		if line = readable(strings.TrimSpace(line)); line != "" {
			fmt.Fprintf(w, "%s %s\n", paint(w, red, "hmcfs:"), shown(line))
		}
	}
}
