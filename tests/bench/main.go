// Bench measures hmcfs against its speed and memory targets, and writes
// docs/benchmarks.md:
//
//	go run ./tests/bench [-write] [-rows TEXT] [-rounds 5] [-size 1GiB]
//
// It needs root, an OpenCL device and bin/hmcfs (make deps build). It starts a
// daemon of its own on a temporary mount, a tmpfs and go-fuse's loopback
// example beside it, and takes everything away at its end, also when it is
// interrupted. The exit status is 1 when something could not be measured; a
// target that is not reached is told in the table.
//
// # How it measures
//
// Each row has sides, hmcfs first. In every round every side has its turn,
// the order rotating, and a ratio is the median of the rounds' own ratios:
// what else the machine does hits both sides. What a row calls dd and cp are
// these programs, run as processes of their own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/hmcfs/hmcfs/devices"
)

// options say what is measured and where it goes.
type options struct {
	hmcfs   string
	sizeArg string
	size    devices.Size
	rounds  int
	files   int
	reads   int
	keys    int
	through devices.Size
	rows    string
	write   bool
	doc     string
}

func defaults() options {
	return options{
		hmcfs: "bin/hmcfs", sizeArg: "1GiB", rounds: 5, files: 10_000, reads: 20_000,
		keys: 1_000_000, through: 10 * devices.GiB, doc: "docs/benchmarks.md",
	}
}

func main() {
	if runChild(os.Args, os.Stdout, os.Stderr) {
		return
	}
	o := defaults()
	flag.StringVar(&o.hmcfs, "hmcfs", o.hmcfs, "the `program` to measure")
	flag.StringVar(&o.sizeArg, "size", o.sizeArg, "size of the files")
	flag.IntVar(&o.rounds, "rounds", o.rounds, "how often each side of a row is measured")
	flag.IntVar(&o.files, "files", o.files, "how many empty files are made and looked at")
	flag.IntVar(&o.keys, "keys", o.keys, "how many keys the store of the last row has")
	flag.StringVar(&o.rows, "rows", o.rows, "measure only rows whose name has this `text`")
	flag.BoolVar(&o.write, "write", o.write, "write the table into the document")
	flag.StringVar(&o.doc, "doc", o.doc, "the document of -write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures all rows, prints them and writes them where that is asked for.
func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	if o.size, err = devices.ParseSize(o.sizeArg); err != nil {
		return err
	}
	l, err := newLab(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	facts := l.facts(ctx)
	var results []result
	for _, r := range l.rows() {
		if !r.matches(o.rows) {
			continue
		}
		fmt.Fprintln(progress, "bench:", r.name)
		res, err := r.measure(ctx, o.rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Fprint(progress, res.text())
		results = append(results, res)
	}
	facts.end()
	text := document(facts, results)
	fmt.Fprint(out, text)
	if !o.write {
		return nil
	}
	return replaceSection(o.doc, text)
}
