package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// keyRow is the result for one key, and its row in --json.
type keyRow struct {
	Key  string `json:"key"`
	Path string `json:"path,omitempty"`
	OK   bool   `json:"ok"`
	// Skipped is set if the key existed already and was left unchanged.
	Skipped bool    `json:"skipped,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Way is the path that the bytes took, as hmcfs reports it.
	Way string `json:"way,omitempty"`
	// Code is the name of the kind of failure, from the table in docs/seeds.md.
	Code  string `json:"code,omitempty"`
	Fault string `json:"error,omitempty"`
}

// keyReport collects the results for the keys of a call. Its methods are called from one
// goroutine at a time.
type keyReport struct {
	a    keyVerbs
	verb string
	bar  *progress
	// keys are the keys of the call, in order, and rows their results.
	keys []string
	rows []keyRow
	// line returns the line of a key that succeeded, which is printed before the total; nil
	// prints none.
	line   func(keyRow) string
	failed int
	ended  []bool
}

// newKeyReport returns an empty report; line may be nil.
func (a keyVerbs) newKeyReport(verb string, pairs []keyPath, line func(keyRow) string) *keyReport {
	r := &keyReport{a: a, verb: verb, line: line, keys: keysOf(pairs), rows: make([]keyRow, len(pairs)), ended: make([]bool, len(pairs))}
	name := fmt.Sprintf("%d keys", len(pairs))
	if len(pairs) == 1 {
		name = pairs[0].key
	}
	r.bar = &progress{to: a.Stderr, name: name}
	for i, p := range pairs {
		r.rows[i] = keyRow{Key: p.key, Path: p.path}
	}
	return r
}

// succeed marks a key as successful; its row must be complete by then.
func (r *keyReport) succeed(i int) {
	r.rows[i].OK, r.ended[i] = true, true
}

// fail marks a key as failed, and prints the reason.
func (r *keyReport) fail(i int, err error) {
	row := &r.rows[i]
	r.ended[i] = true
	r.failed++
	row.Code, row.Fault = statusOf(err).Name, faultText(err)
	r.bar.say(fmt.Sprintf("hmcfs %s: %v", r.verb, hetero.OfKey(row.Key, errors.New(row.Fault))))
}

func (r *keyReport) settle(i int, err error) {
	if err != nil {
		r.fail(i, err)
		return
	}
	r.succeed(i)
}

// finish prints the results. Its error contains the exit code; err is the reason why the
// command ended before its keys did, or nil.
func (r *keyReport) finish(ctx context.Context, asJSON bool, err error) error {
	r.bar.end()
	if ctx.Err() != nil {
		err = ctx.Err() // the user interrupted it, which is reported once
	}
	for i, ended := range r.ended {
		if !ended && ctx.Err() != nil {
			r.rows[i].Code, r.rows[i].Fault = "interrupted", "interrupted"
			r.failed++
		} else if !ended {
			r.fail(i, err)
		}
	}
	if werr := r.write(asJSON); werr != nil {
		return werr
	}
	switch {
	case r.failed == 0:
		return nil
	case ctx.Err() != nil:
		return err
	case r.failed < len(r.rows):
		return &codeError{code: exitPartial, err: errSilent}
	}
	return &codeError{code: exitFailure, err: errSilent}
}

func (r *keyReport) write(asJSON bool) error {
	if asJSON {
		return printJSON(r.a.Stdout, r.rows)
	}
	if r.line == nil {
		return nil
	}
	var sum keyRow
	count := 0
	for _, row := range r.rows {
		if !row.OK {
			continue
		}
		fmt.Fprintln(r.a.Stdout, r.line(row))
		if !row.Skipped {
			count++
			sum.Bytes += row.Bytes
			sum.Seconds += row.Seconds
		}
	}
	if len(r.rows) > 1 && sum.Seconds > 0 {
		fmt.Fprintf(r.a.Stdout, "%d keys: %s\n", count, figures(sum.Bytes, sum.Seconds, ""))
	}
	return nil
}

// movedLine returns the line of a key whose bytes were moved.
func movedLine(row keyRow) string {
	return fmt.Sprintf("%s -> %s: %s", row.Key, row.Path, figures(row.Bytes, row.Seconds, row.Way))
}

// namedLine returns the line of a key that only got a path.
func namedLine(row keyRow) string { return row.Key + " -> " + row.Path }

// hintError is a failure with its remedy.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() + "; " + e.hint }

func (e *hintError) Unwrap() error { return e.err }

func hinted(err error, hint string) error { return &hintError{err: err, hint: hint} }

// faultText formats an error on one line, with a remedy.
func faultText(err error) string {
	text := readable(strings.ReplaceAll(err.Error(), "\n", "; "))
	if _, has := errors.AsType[*hintError](err); has {
		return text
	}
	kind := statusOf(err).Err
	named := errors.Is(kind, hetero.ErrNotFound) || errors.Is(kind, hetero.ErrExist)
	if named && !errors.Is(err, kind) {
		return text // it is about a path, which the text contains
	}
	if client.IsAnswer(err) && errors.Is(kind, hetero.ErrDisconnected) {
		return text // it is another node that does not answer
	}
	if hint := wayOutOf(kind); hint != "" {
		text += "; " + hint
	}
	return text
}

// wayOutOf returns the general remedy for a kind of failure.
func wayOutOf(kind error) string {
	for _, w := range []struct {
		kind error
		text string
	}{
		{hetero.ErrTimeout, "use --timeout to wait longer"},
		{hetero.ErrNotFound, "hmcfs ls-keys lists the keys"},
		{hetero.ErrExist, "another object has the key: hmcfs del removes it"},
		{hetero.ErrInconsistent, "hmcfs del removes the existing object"},
		{hetero.ErrShape, "hmcfs ls-keys --json shows the sizes of its blobs"},
		{hetero.ErrNoMemory, "hmcfs status shows how much is free"},
		{hetero.ErrNotAuthorized, "run it as the owner of the file, or as root"},
		{hetero.ErrNotOwner, "run it as the owner of the file, or as root"},
		{hetero.ErrReadOnly, "mount it without -o ro"},
		{hetero.ErrLost, "set it again, or remove it: hmcfs del"},
		{hetero.ErrBusy, "try again when no process has it open"},
		{hetero.ErrWithdrawn, "publish it again"},
		{hetero.ErrOwnerGone, "publish it again"},
		{hetero.ErrClosed, "hmcfs status shows the state of the mount"},
		{hetero.ErrDisconnected, "hmcfs status shows whether the daemon still runs"},
	} {
		if errors.Is(kind, w.kind) {
			return w.text
		}
	}
	return ""
}

// statusOf returns the kind of a failure, including those of the filesystem.
func statusOf(err error) hetero.Status {
	s := hetero.StatusOf(err)
	if !errors.Is(s.Err, hetero.ErrIO) {
		return s
	}
	for _, f := range []struct{ err, kind error }{
		{context.Canceled, hetero.ErrInterrupted},
		{context.DeadlineExceeded, hetero.ErrTimeout},
		{fs.ErrNotExist, hetero.ErrNotFound},
		{fs.ErrExist, hetero.ErrExist},
		{fs.ErrPermission, hetero.ErrNotAuthorized},
		{syscall.ENOSPC, hetero.ErrNoMemory},
		{syscall.EROFS, hetero.ErrReadOnly},
		{syscall.EBUSY, hetero.ErrBusy},
		{syscall.EINTR, hetero.ErrInterrupted},
		{syscall.EINVAL, hetero.ErrInvalid},
		{syscall.EOPNOTSUPP, hetero.ErrUnsupported},
		// A mount whose daemon has died: the first error is of calls that were in progress,
		// the second of later ones.
		{syscall.ECONNABORTED, hetero.ErrDisconnected},
		{syscall.ENOTCONN, hetero.ErrDisconnected},
	} {
		if errors.Is(err, f.err) {
			return hetero.StatusOf(f.kind)
		}
	}
	return s
}
