// Gpu checks and measures hmcfs on a machine with an accelerator, using programs that were
// copied there: no Go toolchain is needed. run.sh starts it; manually:
//
//	gpu --tools DIR --scratch DIR [--device cuda0] [--quick] [--rows REGEXP] [--out DIR]
//
// The directory of --tools holds hmcfs, truth, cudaraw and fileio (bundle.sh builds them). Gpu
// prints one table: a row for each check with its verdict, and one for each speed target with
// the measured value.
//
// # Exit status
//
// The exit status is 1 when a check failed, 3 when the device does not exist, 4 when essential
// checks could not run on the machine (no /dev/fuse, no privilege to mount or to duplicate
// descriptors, a card that admits only one process, no time left), and 0 otherwise. A missed
// speed target is reported without failing, as is the lack of something optional (a Python
// package).
//
// # How it measures
//
// Each row has sides, hmcfs first. In every round each side has a turn, in rotating order; a
// ratio is the median of the ratios of the rounds. Files are read and written by fileio, a C
// program with one buffer; times of copies include the start of their process. docs/gpu.md has
// the details.
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
	"regexp"
	"syscall"
	"time"
)

// The exit statuses.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNoDevice = 3
	exitUntested = 4
)

// options select what runs and where the output goes.
type options struct {
	device  string
	quick   bool
	rows    *regexp.Regexp // nil chooses all
	tools   string
	hmcfs   string
	scratch string
	out     string
	rounds  int
	limit   time.Duration
}

func main() {
	if actAsNobody(os.Args) {
		return
	}
	var o options
	flag.StringVar(&o.device, "device", "cuda0", "the `name` of the device's directory in a mount")
	flag.BoolVar(&o.quick, "quick", false, "small sizes and two rounds: for correctness, not for numbers")
	flag.Func("rows", "run only the rows whose name matches this `expression`", func(text string) (err error) {
		o.rows, err = regexp.Compile(text)
		return err
	})
	flag.StringVar(&o.tools, "tools", ".", "the `directory` of the programs")
	flag.StringVar(&o.hmcfs, "hmcfs", "", "the `program` to check; default: the one beside the others")
	flag.StringVar(&o.scratch, "scratch", "", "an empty `directory` for mounts; whoever made it takes it away")
	flag.StringVar(&o.out, "out", "", "write the report and the daemon's log into this `directory`")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each side of a row is measured")
	flag.DurationVar(&o.limit, "limit", 7*time.Minute+30*time.Second, "begin no further row after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// prepare sets the options that were not given.
func (o *options) prepare() error {
	if o.scratch == "" {
		return errors.New("--scratch DIR is missing")
	}
	var errs []error
	for _, dir := range []*string{&o.tools, &o.scratch, &o.out, &o.hmcfs} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		*dir, errs = abs, append(errs, err)
	}
	if o.hmcfs == "" {
		o.hmcfs = filepath.Join(o.tools, "hmcfs")
	}
	if o.quick {
		o.rounds = min(o.rounds, 2)
	}
	return errors.Join(errs...)
}

// run runs everything, prints the report and returns the exit status.
func run(ctx context.Context, o options, out, progress io.Writer) int {
	if err := o.prepare(); err != nil {
		fmt.Fprintln(progress, "gpu:", err)
		return exitUsage
	}
	s, err := newSuite(ctx, o, progress)
	if err != nil {
		fmt.Fprintln(progress, "gpu:", err)
		switch {
		case errors.Is(err, errNoDevice):
			return exitNoDevice
		case errors.Is(err, errUntested):
			return exitUntested
		}
		return exitFailed
	}
	s.all(ctx)
	s.close()
	if err := s.publish(out); err != nil {
		fmt.Fprintln(progress, "gpu:", err)
		return exitFailed
	}
	switch {
	case s.failed():
		return exitFailed
	case len(s.untested) > 0:
		return exitUntested
	}
	return 0
}
