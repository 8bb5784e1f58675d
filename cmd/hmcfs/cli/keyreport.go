package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// keyRow is the outcome for one key, and its row in --json.
type keyRow struct {
	Key  string `json:"key"`
	Path string `json:"path,omitempty"`
	OK   bool   `json:"ok"`
	// Skipped says that the key was there already and was left as it is.
	Skipped bool    `json:"skipped,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Way is the way that the bytes took, as hmcfs tells it.
	Way string `json:"way,omitempty"`
	// Code is the word for the kind of failure, as docs/seeds.md has them.
	Code  string `json:"code,omitempty"`
	Fault string `json:"error,omitempty"`
}

// keyReport collects what became of the keys of a call. Its methods are called
// from one goroutine at a time.
type keyReport struct {
	a    keyVerbs
	verb string
	bar  *progress
	rows []keyRow
	// line returns the line of a key that succeeded, before the sum of all;
	// nil is nothing.
	line   func(keyRow) string
	failed int
	ended  []bool
}

func (a keyVerbs) newKeyReport(verb string, pairs []keyPath) *keyReport {
	r := &keyReport{a: a, verb: verb, rows: make([]keyRow, len(pairs)), ended: make([]bool, len(pairs))}
	name := fmt.Sprintf("%d keys", len(pairs))
	if len(pairs) == 1 {
		name = pairs[0].key
	}
	r.bar = newProgress(a.Stderr, name)
	for i, p := range pairs {
		r.rows[i] = keyRow{Key: p.key, Path: p.path}
	}
	return r
}

// keys are the keys of the call, in order.
func (r *keyReport) keys() []string {
	keys := make([]string, len(r.rows))
	for i := range r.rows {
		keys[i] = r.rows[i].Key
	}
	return keys
}

// places are those of all keys.
func (r *keyReport) places() []int {
	places := make([]int, len(r.rows))
	for i := range places {
		places[i] = i
	}
	return places
}

// succeed ends a key; what else there is to say of it is in its row by then.
func (r *keyReport) succeed(i int) {
	r.rows[i].OK, r.ended[i] = true, true
}

// fail ends a key, and tells why.
func (r *keyReport) fail(i int, err error) {
	row := &r.rows[i]
	r.ended[i] = true
	r.failed++
	row.Code, row.Fault = statusOf(err).Name, faultText(err)
	r.bar.say(fmt.Sprintf("hmcfs %s: key %q: %s", r.verb, row.Key, row.Fault))
}

// settle is fail for an error, and else succeed.
func (r *keyReport) settle(i int, err error) {
	if err != nil {
		r.fail(i, err)
		return
	}
	r.succeed(i)
}

// finish writes the answer. The error has the exit code in it; err is why the
// verb has ended before its keys have, or nil.
func (r *keyReport) finish(ctx context.Context, asJSON bool, err error) error {
	r.bar.end()
	if ctx.Err() != nil {
		err = ctx.Err() // a person stopped it, which is told once
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
		return printJSON(r.a.out(), r.rows)
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
		fmt.Fprintln(r.a.out(), r.line(row))
		if !row.Skipped {
			count++
			sum.Bytes += row.Bytes
			sum.Seconds += row.Seconds
		}
	}
	if len(r.rows) > 1 && sum.Seconds > 0 {
		fmt.Fprintf(r.a.out(), "%d keys: %s\n", count, figures(sum.Bytes, sum.Seconds, ""))
	}
	return nil
}

// movedLine is the line of a key whose bytes have moved.
func movedLine(row keyRow) string {
	return fmt.Sprintf("%s -> %s: %s", row.Key, row.Path, figures(row.Bytes, row.Seconds, row.Way))
}

// namedLine is the line of a key that only got another name.
func namedLine(row keyRow) string { return row.Key + " -> " + row.Path }

// hintError is a failure, and the way out of it.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() + "; " + e.hint }

func (e *hintError) Unwrap() error { return e.err }

func hinted(err error, hint string) error { return &hintError{err: err, hint: hint} }

// faultText is an error on one line, with a way out.
func faultText(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if _, has := errors.AsType[*hintError](err); has {
		return text
	}
	kind := statusOf(err).Err
	named := errors.Is(kind, hetero.ErrNotFound) || errors.Is(kind, hetero.ErrExist)
	if named && !errors.Is(err, kind) {
		return text // it is of a path, which the text names
	}
	if hint := wayOutOf(kind); hint != "" {
		text += "; " + hint
	}
	return text
}

// wayOutOf returns the hint where nobody knows better.
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

// statusOf is the kind of a failure, also of one of the file system.
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
		{syscall.EBUSY, hetero.ErrBusy},
		{syscall.EINTR, hetero.ErrInterrupted},
		{syscall.EINVAL, hetero.ErrInvalid},
		{syscall.EOPNOTSUPP, hetero.ErrUnsupported},
		// A mount whose daemon has died: of a call that it had begun, and of one
		// made since.
		{syscall.ECONNABORTED, hetero.ErrDisconnected},
		{syscall.ENOTCONN, hetero.ErrDisconnected},
	} {
		if errors.Is(err, f.err) {
			return hetero.StatusOf(f.kind)
		}
	}
	return s
}
