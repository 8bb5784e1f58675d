// Bench measures hmcfs against its speed and memory targets, and writes the pages of docs/benchmarks:
//
//	go run ./tests/bench [-write] [-rows TEXT] [-rounds 5] [-size 1GiB]
//	go run ./tests/bench -peers [-write] [-rows TEXT] [-rounds 5]
//	go run ./tests/bench -objects [-write] [-rows TEXT] [-rounds 5]
//	go run ./tests/bench -nodes [-write] [-rows TEXT] [-rounds 5] [-size 1GiB]
//	go run ./tests/bench -collectives [-write] [-rows TEXT] [-rounds 5]
//	go run ./tests/bench -ranks [-write] [-rows TEXT] [-rounds 5]
//	go run ./tests/bench -held [-write] [-rows TEXT] [-rounds 30] [-deaths 30]
//	go run ./tests/bench -summary -write
//
// The first measures a mount, the second the communicator between two processes, the third keyed
// objects, the fourth the mounts of a cluster, the fifth collectives, in comparison with
// Open MPI and PyTorch with Gloo, which must be installed for it (openmpi-bin, libopenmpi-dev,
// python3-torch), the sixth ranks in Python, in comparison with ranks in Go, and the seventh a mount
// whose daemon is killed and upgraded, in comparison with one without a holder. The last measures
// nothing: it writes docs/benchmarks.md, its chart and the table of the README from the pages, as
// every other one does at its end.
//
// All others need root and the output of `make deps build`. The first starts a daemon
// on a temporary mount, and for comparison a tmpfs, go-fuse's loopback example and, with -vramfs PROGRAM, vramfs
// on the same OpenCL device; the second
// runs hmcfs perf serve, locally and between two network namespaces, and for comparison iperf3
// and ucx_perftest. Everything is removed at the end, even after an interrupt. The exit status
// is 1 when something could not be measured; a missed target is only reported in the table.
//
// # How it measures
//
// Each row has sides, hmcfs first. In every round each side has a turn, in rotating order, and a
// ratio is the median of the ratios of the rounds: other load on the machine affects both sides.
// In the rows, dd and cp are these programs, run as processes of their own.
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
	"syscall"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// options select what is measured and where the output goes.
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

	// summary only summarizes what was measured.
	summary bool
	// vramfs is the program of that name, or empty.
	vramfs string

	// nodes measures a cluster.
	nodes bool

	// The options of collectives.
	collectives        bool
	collectivesPicture string
	times              int // each row is measured in one run

	// The options of ranks in Python.
	ranks     bool
	rankCalls int    // in one run
	python    string // the folder of the package

	// The options of mounts that outlive their daemons.
	held   bool
	deaths int

	// The options of keyed objects.
	objects   bool
	manyKeys  int // keys of one call
	manyBlobs int // blobs of one key
	calls     int // calls for a small key, in one run

	// The options of the communicator.
	peers   bool
	picture string
	sizes   string       // of the picture
	large   devices.Size // a large transfer
	moved   devices.Size // by each side of a bandwidth row
	slow    devices.Size // by a contender that is slow
	trips   int
	seconds int
}

func defaults() options {
	return options{
		hmcfs: "bin/hmcfs", sizeArg: "1GiB", rounds: 5, files: 10_000, reads: 20_000,
		keys: 1_000_000, through: 10 * devices.GiB,
		deaths: 30, rankCalls: 20, python: "objects/client/python",
		manyKeys: 8192, manyBlobs: 512, calls: 2000,
		picture: pages + "bandwidth.svg", collectivesPicture: pages + "collectives.svg", times: 5, sizes: "8..1GiB", large: 64 * devices.MiB, moved: devices.GiB, slow: 64 * devices.MiB, trips: 20_000, seconds: 1,
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
	flag.StringVar(&o.rows, "rows", o.rows, "measure only rows whose name has this `text`; with -peers -write and none there is the picture alone")
	flag.BoolVar(&o.write, "write", o.write, "write the table into the document")
	flag.StringVar(&o.doc, "doc", o.doc, "the document of -write; by default the page of docs/benchmarks")
	flag.BoolVar(&o.peers, "peers", o.peers, "measure the communicator between two processes, and not a mount")
	flag.BoolVar(&o.objects, "objects", o.objects, "measure keyed objects, and not a mount")
	flag.BoolVar(&o.nodes, "nodes", o.nodes, "measure mounts that know each other")
	flag.BoolVar(&o.collectives, "collectives", o.collectives, "measure collectives between processes")
	flag.BoolVar(&o.ranks, "ranks", o.ranks, "measure ranks in Python")
	flag.BoolVar(&o.held, "held", o.held, "measure a mount that outlives its daemons")
	flag.IntVar(&o.deaths, "deaths", o.deaths, "how many daemons are killed, and how many upgraded, with -held")
	flag.BoolVar(&o.summary, "summary", o.summary, "write the summary of what was measured")
	flag.StringVar(&o.vramfs, "vramfs", o.vramfs, "`program` of vramfs to compare with; its GPU filter must accept the device")
	flag.StringVar(&o.picture, "picture", o.picture, "the picture of -peers -write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures all rows, prints them and writes them where requested.
func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	o.size, err = devices.ParseSize(o.sizeArg)
	if err != nil {
		return err
	}
	if o.hmcfs, err = filepath.Abs(o.hmcfs); err != nil {
		return err
	}
	if o.summary {
		return writeSummary(".")
	}
	b, begin, page := o.bed()
	ours := o.doc == "" // the pages of this repository
	if ours {
		o.doc = pages + page + ".md"
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err = b.setUp(ctx); err != nil {
		return err
	}
	if err = table(ctx, o, b, begin, out, progress); err != nil || !o.write {
		return err
	}
	if drawn, ok := b.(interface {
		picture(ctx context.Context, progress io.Writer) error
	}); ok {
		err = drawn.picture(ctx, progress)
	}
	if err != nil || !ours {
		return err
	}
	return writeSummary(".")
}

// bed returns what the options select: where it is measured, the line of the document at which it
// begins, and the page.
func (o options) bed() (b bed, begin, page string) {
	switch {
	case o.peers:
		return &peers{opts: o}, peersBegin, "peers"
	case o.objects:
		return &lobby{opts: o, lab: &lab{opts: o}}, objectsBegin, "objects"
	case o.collectives:
		return &collectives{opts: o}, collectivesBegin, "collectives"
	case o.ranks:
		return &ranks{opts: o}, ranksBegin, "ranks"
	case o.held:
		return &held{opts: o, lab: &lab{opts: o}}, heldBegin, "held"
	case o.nodes:
		return &nodes{opts: o}, nodesBegin, "nodes"
	}
	return &lab{opts: o, opencl: opencl.NewDriver(opencl.Options{})}, sectionBegin, "mount"
}

// bed is an environment in which rows are measured. Whatever setUp has set up is released by
// Close, even if setUp fails.
type bed interface {
	setUp(ctx context.Context) error
	Close() error
	facts(ctx context.Context) *facts
	rows() []row
}

// table measures the selected rows of a bed and prints them. With -write they replace the part
// of the document that follows the line begin; if there are no rows, the document is
// unchanged.
func table(ctx context.Context, o options, b bed, begin string, out, progress io.Writer) error {
	f := b.facts(ctx)
	results, err := measureRows(ctx, b.rows(), o, progress)
	if err != nil {
		return err
	}
	f.end()
	text := document(f, results)
	fmt.Fprint(out, text)
	if !o.write || len(results) == 0 {
		return nil
	}
	return measure.ReplaceSection(o.doc, begin, text)
}

// measureRows measures the selected rows.
func measureRows(ctx context.Context, rows []row, o options, progress io.Writer) ([]result, error) {
	var results []result
	for _, r := range rows {
		if !r.matches(o.rows) {
			continue
		}
		fmt.Fprintln(progress, "bench:", r.name)
		res, err := r.measure(ctx, o.rounds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		res.load = measure.Load()
		fmt.Fprint(progress, res.text())
		results = append(results, res)
	}
	return results, nil
}
