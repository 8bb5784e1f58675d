// Tally runs go test and counts: it prints a line for each package, the output of failures and
// the reason of each skip, and ends with
//
//	N passed, N failed, N skipped
//
// after the tests that took longest and, as the output of failures is long, the first line of everything that failed tests said. Subtests count like tests, and a package that doesn't build
// or crashes counts as one failure. Arguments are passed to go test. With -counts FILE the numbers are also appended to a
// file. With -using NAMES, only tests that use one of the names, such as kit.Rounds, run, of all
// packages below the working directory: the matching packages and tests are added to the
// arguments.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/hmcfs/hmcfs/tests/testfiles"
)

func main() {
	counts := flag.String("counts", "", "append the numbers to this `file`")
	using := flag.String("using", "", "run the tests that use one of these `names`, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	args, err := arguments(flag.Args(), *using)
	if err == nil {
		err = run(ctx, os.Stdout, *counts, args)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
}

// arguments returns the arguments of go test, extended by the tests that use one of the
// identifiers, if there are any.
func arguments(args []string, identifiers string) ([]string, error) {
	if identifiers == "" {
		return args, nil
	}
	tests := make(map[string]bool)
	var packages []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != "." && strings.ContainsAny(name[:1], "._") || name == "testdata" {
			return fs.SkipDir // as the go command does
		}
		found, err := testfiles.Read(path)
		if err != nil {
			return err
		}
		using := found.Using(strings.Split(identifiers, ",")...)
		for _, test := range using {
			tests[test] = true
		}
		if len(using) > 0 {
			packages = append(packages, "./"+path)
		}
		return nil
	})
	if err == nil && len(packages) == 0 {
		err = fmt.Errorf("no test uses %s", identifiers)
	}
	return append(append(slices.Clone(args), "-run", "^("+strings.Join(slices.Sorted(maps.Keys(tests)), "|")+")$"), packages...), err
}

// run runs go test. It fails if go test fails or anything failed in it.
func run(ctx context.Context, out io.Writer, counts string, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t := newTally(out)
	readErr := t.read(events)
	waitErr := cmd.Wait()
	if waitErr != nil && t.failed == 0 {
		t.failed = 1 // it failed before any test ran
	}
	t.printSlowest()
	for _, line := range t.said {
		t.print(line)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return errors.Join(readErr, waitErr, appendCounts(counts, t))
}

// appendCounts appends the numbers as a line to the file, if one is given.
func appendCounts(file string, t *tally) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, t.passed, t.failed, t.skipped)
	return errors.Join(err, f.Close())
}

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

// tally counts events and keeps the output of tests until it is known whether it has to be
// printed.
type tally struct {
	out                     io.Writer
	passed, failed, skipped int
	times                   []event                     // the ends of tests that are no subtests
	pending                 map[string]*strings.Builder // by package and test
	broken                  map[string]bool             // packages with a failed test
	said                    []string                    // the first lines of what failed tests said
}

// newTally returns an empty tally.
func newTally(out io.Writer) *tally {
	return &tally{out: out, pending: make(map[string]*strings.Builder), broken: make(map[string]bool)}
}

// read counts all events of a stream.
func (t *tally) read(r io.Reader) error {
	for dec := json.NewDecoder(r); ; {
		var e event
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			_, _ = io.Copy(io.Discard, r) // go test must not block
			return fmt.Errorf("read the events of go test: %w", err)
		}
		t.add(e)
	}
}

// add counts one event.
func (t *tally) add(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "build-output":
		t.print(e.Output)
	case "output":
		if t.pending[key] == nil {
			t.pending[key] = new(strings.Builder)
		}
		t.pending[key].WriteString(e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			t.addPackage(e, t.take(key))
		} else {
			t.addTest(e, t.take(key))
		}
	}
}

// addTest counts the end of a test.
func (t *tally) addTest(e event, output string) {
	if !strings.Contains(e.Test, "/") {
		t.times = append(t.times, e)
	}
	switch e.Action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		t.print(fmt.Sprintf("skip\t%s %s%s\n", e.Package, e.Test, reason(output)))
	case "fail":
		t.failed++
		t.broken[e.Package] = true
		t.print(output)
		t.said = append(t.said, firstLines(e, output)...)
	}
}

// addPackage counts the end of a package. A package that failed without a failed test did
// not build, or was killed; then the output of the tests that have not ended is printed.
func (t *tally) addPackage(e event, output string) {
	switch e.Action {
	case "pass":
		t.print(fmt.Sprintf("ok\t%s\t%.1fs\n", e.Package, e.Elapsed))
	case "fail":
		if !t.broken[e.Package] {
			t.failed++
		}
		for _, key := range slices.Sorted(maps.Keys(t.pending)) {
			if strings.HasPrefix(key, e.Package+"\x00") {
				t.print(t.take(key))
			}
		}
		t.print(output)
	}
}

// slowest is the number of tests whose times are printed.
const slowest = 20

// printSlowest prints the tests that took longest, without their subtests.
func (t *tally) printSlowest() {
	slices.SortStableFunc(t.times, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range t.times[:min(len(t.times), slowest)] {
		t.print(fmt.Sprintf("slow\t%s %s\t%.1fs\n", e.Package, e.Test, e.Elapsed))
	}
}

// mostSaid bounds the lines that are repeated of a failed test, and mostOfLine their bytes.
const (
	mostSaid   = 80
	mostOfLine = 300
)

// firstLines returns the first line of each message of a failed test. Which of them are errors is not marked.
func firstLines(e event, output string) (lines []string) {
	said := regexp.MustCompile(`^    \w+\.go:\d+: `)
	for line := range strings.Lines(output) {
		if said.MatchString(line) && len(lines) < mostSaid {
			line = strings.TrimSpace(line)
			lines = append(lines, fmt.Sprintf("said\t%s %s\t%s\n", e.Package, e.Test, line[:min(len(line), mostOfLine)]))
		}
	}
	return lines
}

// take returns the kept output and forgets it.
func (t *tally) take(key string) string {
	b := t.pending[key]
	delete(t.pending, key)
	if b == nil {
		return ""
	}
	return b.String()
}

// print writes a text unchanged.
func (t *tally) print(s string) { fmt.Fprint(t.out, s) }

// reason finds the reason for a skip in the output of a test.
func reason(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			return ": " + line
		}
	}
	return ""
}
