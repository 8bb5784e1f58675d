package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// options holds the values of the flags.
type options struct {
	count, atATime, load int
	limit, timeout       time.Duration
	race                 bool
	scratch              string
}

// turn is one run of one test.
type turn struct {
	dir, binary, test string
}

// score counts the runs.
type score struct {
	mu sync.Mutex
	// +checklocks:mu
	out io.Writer
	// +checklocks:mu
	passed, failed, skipped int
	// +checklocks:mu
	shown map[string]bool // tests whose failure was printed whole
}

// compile builds the test binaries of the packages and returns the turns of one round. A
// package that does not compile is an error.
func compile(ctx context.Context, out io.Writer, o options, chosen map[string][]string) ([]turn, error) {
	var turns []turn
	for i, dir := range slices.Sorted(maps.Keys(chosen)) {
		binary := filepath.Join(o.scratch, fmt.Sprintf("%d.test", i))
		args := []string{"test", "-c", "-o", binary}
		if o.race {
			args = append(args, "-race", "-tags", "invariants")
		}
		if said, err := exec.CommandContext(ctx, "go", append(args, "./"+dir)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", dir, err, said)
		}
		fmt.Fprintf(out, "%s: %s\n", dir, strings.Join(chosen[dir], " "))
		for _, test := range chosen[dir] {
			turns = append(turns, turn{dir, binary, test})
		}
	}
	return turns, nil
}

// repeat runs all turns count times, several at a time, until the limit.
func (s *score) repeat(ctx context.Context, o options, turns []turn) (whole int) {
	todo := make(chan turn)
	var all sync.WaitGroup
	for range o.atATime {
		all.Go(func() {
			for t := range todo {
				s.one(ctx, o, t)
			}
		})
	}
	defer all.Wait()
	defer close(todo)
	enough := time.NewTimer(o.limit)
	defer enough.Stop()
	for round := range o.count {
		for _, t := range turns {
			select {
			case todo <- t:
			case <-enough.C:
				return round
			case <-ctx.Done():
				return round
			}
		}
	}
	return o.count
}

// one runs a turn.
func (s *score) one(ctx context.Context, o options, t turn) {
	cmd := exec.CommandContext(ctx, t.binary, "-test.run=^"+t.test+"$", "-test.v", "-test.count=1", "-test.timeout="+o.timeout.String())
	cmd.Dir = t.dir
	cmd.WaitDelay = time.Minute // processes that it leaves behind may hold its output
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return // this program is ending
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.failed++
		name := t.dir + " " + t.test
		fmt.Fprintf(s.out, "FAIL %s: %v\n", name, err)
		if !s.shown[name] {
			s.shown[name] = true
			fmt.Fprintf(s.out, "%s\n", out)
		}
	case bytes.Contains(out, []byte("--- SKIP: "+t.test+" ")):
		s.skipped++
	case bytes.Contains(out, []byte("--- PASS: "+t.test+" ")):
		s.passed++
	default:
		s.failed++
		fmt.Fprintf(s.out, "FAIL %s %s: it did not run\n%s\n", t.dir, t.test, out)
	}
}

var (
	errFailed  = errors.New("tests failed")
	errNothing = errors.New("tests differ, and none of them ran")
)

// end prints the numbers and reports whether the result is a success.
func (s *score) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	switch {
	case s.failed > 0:
		return errFailed
	case s.passed == 0:
		return errNothing
	}
	return nil
}
