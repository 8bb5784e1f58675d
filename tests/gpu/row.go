package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// verdict is the outcome of a row.
type verdict string

// The verdicts.
const (
	passed  verdict = "ok"
	failed  verdict = "**FAILED**"
	reached verdict = "reached"
	missed  verdict = "**missed**"
	stated  verdict = "stated"
	skipped verdict = "not run"
)

// row is one line of the table.
type row struct {
	what, measured, target string
	verdict                verdict
}

// errSkip reports that something can't be run on this machine, which is not a failure.
var errSkip = errors.New("not run")

// skip returns an error that explains why something can't be run here.
func skip(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errSkip, fmt.Sprintf(format, args...))
}

// add adds a row to the table and reports it at once.
func (s *suite) add(r row) {
	s.rows = append(s.rows, r)
	fmt.Fprintf(s.progress, "%6.1fs  %-11s %s: %s\n", time.Since(s.begin).Seconds(), r.verdict, r.what, r.measured)
}

// check runs a check of correctness and adds its row. fn returns its observations; any error
// other than errSkip fails the run.
func (s *suite) check(ctx context.Context, what string, fn func(context.Context) (string, error)) {
	if !s.chosen(what) {
		return
	}
	r := row{what: what, verdict: passed}
	err := s.inTime(ctx)
	if errors.Is(err, errSkip) {
		s.withhold(what, err)
		return
	}
	if err == nil {
		r.measured, err = fn(ctx)
	}
	switch {
	case errors.Is(err, errSkip):
		r.verdict, r.measured = skipped, strings.TrimPrefix(err.Error(), errSkip.Error()+": ")
	case err != nil:
		r.verdict, r.measured = failed, oneLine(err.Error())
	}
	s.add(r)
}

// chosen reports whether a row was asked for.
func (s *suite) chosen(what string) bool { return s.opts.rows == nil || s.opts.rows.MatchString(what) }

// fail adds the row of a check that could not be prepared.
func (s *suite) fail(ctx context.Context, what string, err error) {
	s.check(ctx, what, func(context.Context) (string, error) { return "", err })
}

// inTime returns an error if there is no time left for another row.
func (s *suite) inTime(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted: %w", err)
	}
	if spent := time.Since(s.begin); spent > s.opts.limit {
		return skip("%v have passed, the limit is %v", spent.Round(time.Second), s.opts.limit)
	}
	return nil
}

// oneLine makes a text fit into a cell of the table.
func oneLine(text string) string {
	const most = 400
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// failed reports whether a check failed.
func (s *suite) failed() bool {
	for _, r := range s.rows {
		if r.verdict == failed {
			return true
		}
	}
	return false
}

// text returns the whole report.
func (s *suite) text() string {
	var b strings.Builder
	b.WriteString("## hmcfs on " + s.device.title() + "\n\n")
	for _, f := range s.facts {
		b.WriteString("- " + f + "\n")
	}
	b.WriteString("\n| what | measured | target | verdict |\n| --- | --- | --- | --- |\n")
	count := make(map[verdict]int)
	for _, r := range s.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.what, r.measured, r.target, r.verdict)
		count[r.verdict]++
	}
	fmt.Fprintf(&b, "\n%d checks ok, %d failed, %d targets reached, %d missed, %d rows not run; %.0f s\n",
		count[passed], count[failed], count[reached], count[missed], count[skipped], time.Since(s.begin).Seconds())
	if len(s.untested) > 0 {
		b.WriteString("\nNOT TESTED, and so not known to be right:\n\n- " + strings.Join(s.untested, "\n- ") + "\n")
	}
	return b.String()
}

// publish prints the report, and writes it to the output directory if there is one.
func (s *suite) publish(out io.Writer) error {
	text := s.text()
	fmt.Fprint(out, text)
	if s.opts.out == "" {
		return nil
	}
	if err := os.MkdirAll(s.opts.out, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(s.opts.out, "report.md"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(s.opts.out, "daemon.log"), []byte(s.log), 0o644))
}
