// Stress runs the tests that a change adds or touches, many times and several at a time, while
// spinning goroutines keep the processors busy. It prints the failures and ends with
//
//	N passed, N failed, N skipped
//
// where each run of a test counts. The change is the difference between a commit and the files
// in the directory:
//
//	go run ./tests/stress [-count 50] [-limit 30m] [COMMIT]
//
// The default of COMMIT is the commit at which the branch left main or, on main itself, the
// commit before the last one. A test is touched if one of its lines is, or if it uses a
// function, type or variable of its file that is touched; helper files without tests count for
// all tests of the package.
//
// Each run is a process of its own, so copies of one test also run at the same time. Tests take
// turns: if -limit ends the runs early, all of them have run about equally often. Stress fails
// if a test did, or if every run of all of them was skipped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.count, "count", 50, "run each test `N` times")
	flag.IntVar(&o.atATime, "at-a-time", runtime.NumCPU(), "run `N` tests at a time")
	flag.IntVar(&o.load, "load", runtime.NumCPU(), "keep `N` threads busy meanwhile")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "begin no run after this `time`")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long one run may take")
	flag.BoolVar(&o.race, "race", false, "with the race detector and the invariant checks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o, flag.Arg(0))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
}

// run stresses the tests that differ from a commit, or from the default one if commit is
// empty.
func run(ctx context.Context, out io.Writer, o options, base string) (err error) {
	if base == "" {
		if base, err = baseOf(ctx); err != nil {
			return fmt.Errorf("find what to compare with: %w", err)
		}
	}
	changed, err := changedLines(ctx, base)
	if err != nil {
		return err
	}
	chosen, err := testsOf(changed)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		fmt.Fprintf(out, "no test differs from %s\n0 passed, 0 failed, 0 skipped\n", base)
		return nil
	}
	dir, err := os.MkdirTemp("", "stress-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.scratch, err = filepath.Abs(dir); err != nil {
		return err
	}
	turns, err := compile(ctx, out, o, chosen)
	if err != nil {
		return err
	}
	relax := spin(o.load)
	s := &score{out: out, shown: make(map[string]bool)}
	rounds := s.repeat(ctx, o, turns)
	relax()
	fmt.Fprintf(out, "%d of %d rounds of %d tests that differ from %s\n", rounds, o.count, len(turns), base)
	return errors.Join(s.end(), ctx.Err())
}

// spin keeps threads busy until it is stopped.
func spin(threads int) (stop func()) {
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + threads)
	var over atomic.Bool
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			runtime.LockOSThread()
			for !over.Load() {
			}
		})
	}
	return func() {
		over.Store(true)
		all.Wait()
		runtime.GOMAXPROCS(before)
	}
}
