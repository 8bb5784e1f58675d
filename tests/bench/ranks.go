package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/job"
)

//go:embed others/ranks.py
var rankSource []byte

// ranks measures its rows with two ranks in Python, and with two in Go.
type ranks struct {
	measure.Undo

	opts   options
	dir    string
	source string
	// python is the folder of the package.
	python string
}

// setUp writes the program of the ranks in Python.
func (r *ranks) setUp(context.Context) (err error) {
	if r.dir, err = r.Folder(); err != nil {
		return err
	}
	if r.python, err = filepath.Abs(r.opts.python); err != nil {
		return err
	}
	r.source = filepath.Join(r.dir, "ranks.py")
	return os.WriteFile(r.source, rankSource, 0o600)
}

// facts collects facts about the machine and its programs.
func (r *ranks) facts(ctx context.Context) *facts {
	f := newFacts(ctx, r.opts)
	f.add("Go", runtime.Version())
	f.add("Python", measure.Said(ctx, "/usr/bin/python3", "--version"))
	f.last = fmt.Sprintf("- medians of %d rounds, in each of which both programs are started anew and the median of %d calls counts; "+
		"two ranks of this host, float32\n\n", r.opts.rounds, r.opts.rankCalls)
	return f
}

// The sides of the rows.
const (
	inPython = "Python"
	inGo     = "Go"
)

// rows lists the rows of the table in order.
func (r *ranks) rows() []row {
	var all []row
	for i, what := range []string{"all-reduce", "send and receive"} {
		for _, size := range []devices.Size{16 * devices.MiB, 64 * devices.MiB} {
			args := []string{strconv.Itoa(i), strconv.FormatUint(uint64(size), 10), strconv.Itoa(r.opts.rankCalls)}
			all = append(all, row{
				name: fmt.Sprintf("%s of %v between two ranks", what, size), unit: micros,
				sides: []side{
					{Name: inPython, Run: func(ctx context.Context) (float64, error) {
						return r.run(ctx, "/usr/bin/python3", append([]string{"-B", r.source}, args...))
					}},
					{Name: inGo, Run: func(ctx context.Context) (float64, error) {
						program, err := os.Executable()
						if err != nil {
							return 0, err
						}
						return r.run(ctx, program, append([]string{childArg, "rank", r.file()}, args...))
					}},
				},
				wants: []want{{of: inPython, against: inGo, bound: 1.10, atMost: true}},
				notes: []string{"Memory that both ranks have mapped; the time of rank 0, after a barrier."},
			})
		}
	}
	return all
}

// file returns the file into which rank 0 writes its result.
func (r *ranks) file() string { return filepath.Join(r.dir, "seconds") }

// run runs a program as two ranks, and returns the seconds that rank 0 has measured.
func (r *ranks) run(ctx context.Context, program string, args []string) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	cmd := exec.CommandContext(ctx, r.opts.hmcfs, slices.Concat([]string{"run", "--nranks", "2", "--", program}, args)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+r.python, "SECONDS_FILE="+r.file())
	if _, err := measure.Output(cmd); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(r.file())
	if err != nil {
		return 0, err
	}
	took, err := strconv.ParseFloat(string(text), 64)
	return took, errors.Join(err, os.Remove(r.file()))
}

// rankTask is a rank in Go: it makes the calls of others/ranks.py, and rank 0 writes the median
// time to a file.
func rankTask(ctx context.Context, file string, sends bool, size devices.Size, calls int) (median float64, err error) {
	o, err := job.FromEnv(os.Getenv)
	if err != nil {
		return 0, err
	}
	j, err := job.Init(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, j.Close()) }() //nolint:contextcheck // cleanup must not depend on the context
	g, err := collective.New(ctx, j.World().Fabric(), collective.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.Close()) }() //nolint:contextcheck // as above
	b, err := j.Table().Alloc(size)
	if err != nil {
		return 0, err
	}
	if _, err = g.Share(ctx, b); err != nil {
		return 0, err
	}
	v, err := domain.All(b, elem.Float32)
	if err != nil {
		return 0, err
	}
	call := func() error { return g.AllReduce(ctx, v, v, elem.Sum) }
	if sends && j.World().Rank() == 0 {
		call = func() error { return j.World().Comm().Send(ctx, v, 1, 0) }
	} else if sends {
		call = func() error { return j.World().Comm().Recv(ctx, v, 0, 0) }
	}
	clear(b.Host(0, size))
	const warmUp = 3
	var took bench.Series
	for i := range warmUp + calls {
		for range 2 {
			if err = g.Barrier(ctx); err != nil {
				return 0, err
			}
		}
		begin := time.Now()
		if err = call(); err != nil {
			return 0, err
		}
		if i >= warmUp {
			took = append(took, time.Since(begin).Seconds())
		}
	}
	if j.World().Rank() > 0 {
		return 0, g.Barrier(ctx)
	}
	median = took.Median()
	if err = os.WriteFile(file, []byte(strconv.FormatFloat(median, 'g', -1, 64)), 0o600); err != nil {
		return 0, err
	}
	return median, g.Barrier(ctx)
}
