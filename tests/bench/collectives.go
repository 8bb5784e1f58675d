package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

//go:embed others/allreduce.c
var mpiSource []byte

//go:embed others/allreduce.py
var glooSource []byte

// collectives measures its rows with groups of ranks on one host, of hmcfs and of others.
type collectives struct {
	measure.Undo

	opts   options
	dir    string
	groups []*group
	// measured is true if all groups have been measured.
	measured bool
}

// group is one program that runs collectives, with its results.
type group struct {
	name string
	// run measures all-reduce of several sizes, with 0 bytes for a barrier, with the given
	// number of ranks: seconds by size in bytes.
	run runGroup
	// ranks lists the numbers of ranks to measure with.
	ranks []int
	took  map[point]bench.Series
}

type runGroup func(ctx context.Context, ranks int, sizes []devices.Size) (map[devices.Size]float64, error)

func newGroup(name string, ranks []int, run runGroup) *group {
	return &group{name: name, ranks: ranks, run: run, took: map[point]bench.Series{}}
}

// point is one measurement.
type point struct {
	ranks int
	bytes devices.Size
}

// The sizes of the targets, and those of the picture.
func largeSizes() []devices.Size {
	return []devices.Size{devices.MiB, 16 * devices.MiB, 64 * devices.MiB, 256 * devices.MiB}
}

func smallSizes() []devices.Size { return []devices.Size{8, 1024, 8 * devices.KiB, 64 * devices.KiB} }

// allSizes returns the same sizes, and 0 for a barrier.
func allSizes() []devices.Size {
	return slices.Concat([]devices.Size{0}, smallSizes(), []devices.Size{256 * devices.KiB}, largeSizes())
}

// sizesFor returns the sizes to measure with the given number of ranks.
func sizesFor(ranks int) []devices.Size {
	if ranks > 2 {
		return []devices.Size{0, devices.MiB, 64 * devices.MiB}
	}
	return allSizes()
}

// setUp builds the programs of the others.
func (c *collectives) setUp(ctx context.Context) (err error) {
	if c.dir, err = c.Folder(); err != nil {
		return err
	}
	for _, tool := range []string{"mpicc", "mpirun"} {
		if err = installed(tool); err != nil {
			return fmt.Errorf("%w; install openmpi-bin and libopenmpi-dev", err)
		}
	}
	source, program := filepath.Join(c.dir, "allreduce.c"), filepath.Join(c.dir, "allreduce")
	if err = os.WriteFile(source, mpiSource, 0o600); err != nil {
		return err
	}
	if _, err = measure.Output(exec.CommandContext(ctx, "mpicc", "-O3", "-march=native", "-o", program, source)); err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(c.dir, "allreduce.py"), glooSource, 0o600); err != nil {
		return err
	}
	c.groups = []*group{
		c.hmcfs(hmcfsShared, "shm"), c.hmcfs(hmcfsTCP, "tcp"),
		c.mpi(mpiShared, "self,vader"), c.mpi(mpiTCP, "self,tcp"), c.gloo(),
	}
	return nil
}

// The groups' names.
const (
	hmcfsShared = "hmcfs shm"
	hmcfsTCP    = "hmcfs tcp"
	mpiShared   = "Open MPI shm"
	mpiTCP      = "Open MPI tcp"
	glooTCP     = "Gloo"
)

// hmcfs returns the group of the program under test, with a transport.
func (c *collectives) hmcfs(name, transport string) *group {
	return newGroup(name, []int{2, 4}, func(ctx context.Context, ranks int, sizes []devices.Size) (map[devices.Size]float64, error) {
		rows, err := c.perf(ctx, transport, ranks, "--operation", "barrier", "--operation", "allreduce", "--sizes", sizeList(sizes),
			"--rounds", strconv.Itoa(c.opts.times))
		took := map[devices.Size]float64{}
		for i := range rows {
			took[rows[i].Bytes] = rows[i].Seconds
		}
		return took, err
	})
}

// perf runs hmcfs perf collective with the given number of ranks.
func (c *collectives) perf(ctx context.Context, transport string, ranks int, args ...string) ([]perf.CollectiveRow, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	file := filepath.Join(c.dir, "report.json")
	all := append([]string{
		"run", "--nranks", strconv.Itoa(ranks), "--transport", transport, "--", c.opts.hmcfs, "perf", "collective",
		"--report", file, "--warm-up", "2",
	}, args...)
	if _, err := measure.Output(exec.CommandContext(ctx, c.opts.hmcfs, all...)); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var report struct {
		Rows []perf.CollectiveRow `json:"rows"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("report of hmcfs perf collective: %w", err)
	}
	return report.Rows, os.Remove(file)
}

// sizeList formats the sizes other than 0 for a flag.
func sizeList(sizes []devices.Size) string {
	return strings.Join(plain(slices.DeleteFunc(slices.Clone(sizes), func(n devices.Size) bool { return n == 0 })), ",")
}

// mpi returns the group of Open MPI with some of its transports. It does not spin if there are
// more ranks than processors.
func (c *collectives) mpi(name, btl string) *group {
	return newGroup(name, []int{2, 4}, func(ctx context.Context, ranks int, sizes []devices.Size) (map[devices.Size]float64, error) {
		yield := "0"
		if ranks > runtime.NumCPU() {
			yield = "1"
		}
		args := []string{
			"--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(ranks), "--mca", "btl", btl,
			"--mca", "mpi_yield_when_idle", yield, filepath.Join(c.dir, "allreduce"), "in", strconv.Itoa(c.opts.times),
		}
		out, err := measure.Output(exec.CommandContext(ctx, "mpirun", append(args, plain(sizes)...)...))
		if err != nil {
			return nil, err
		}
		return secondsBySize(out)
	})
}

// gloo returns the group of Gloo, through PyTorch.
func (c *collectives) gloo() *group {
	return newGroup(glooTCP, []int{2}, func(ctx context.Context, ranks int, sizes []devices.Size) (map[devices.Size]float64, error) {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		rank := func(r int) *exec.Cmd {
			args := []string{filepath.Join(c.dir, "allreduce.py"), strconv.Itoa(r), strconv.Itoa(ranks), strconv.Itoa(port), strconv.Itoa(c.opts.times)}
			// Debian's own Python has Debian's PyTorch.
			return exec.CommandContext(ctx, "/usr/bin/python3", append(args, plain(sizes)...)...)
		}
		var others []*exec.Cmd
		defer func() {
			for _, cmd := range others {
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // it has finished, or was killed
			}
		}()
		for r := 1; r < ranks; r++ {
			cmd := rank(r)
			if err = cmd.Start(); err != nil {
				return nil, err
			}
			others = append(others, cmd)
		}
		out, err := measure.Output(rank(0))
		if err != nil {
			return nil, fmt.Errorf("%w (PyTorch is Debian's python3-torch)", err)
		}
		return secondsBySize(out)
	})
}

// plain formats sizes as numbers.
func plain(sizes []devices.Size) []string {
	texts := make([]string, len(sizes))
	for i, n := range sizes {
		texts[i] = strconv.FormatUint(uint64(n), 10)
	}
	return texts
}

// secondsBySize parses lines of bytes and seconds.
func secondsBySize(text string) (map[devices.Size]float64, error) {
	took := map[devices.Size]float64{}
	for line := range strings.Lines(text) {
		var bytes uint64
		var s float64
		if _, err := fmt.Sscan(line, &bytes, &s); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		took[devices.Size(bytes)] = s
	}
	return took, nil
}

// measure measures every group in turn, once for all rows.
func (c *collectives) measure(ctx context.Context, rounds int) error {
	if c.measured {
		return nil
	}
	var turns []side
	for _, g := range c.groups {
		turns = append(turns, side{Name: g.name, Run: func(ctx context.Context) (float64, error) { return 0, g.measure(ctx) }})
	}
	_, err := bench.Interleave(ctx, rounds, turns)
	c.measured = err == nil
	return err
}

// measure measures all sizes with each number of ranks.
func (g *group) measure(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, time.Duration(len(g.ranks))*patience)
	defer stop()
	for _, ranks := range g.ranks {
		took, err := g.run(ctx, ranks, sizesFor(ranks))
		if err != nil {
			return fmt.Errorf("%d ranks: %w", ranks, err)
		}
		for n, s := range took {
			at := point{ranks, n}
			g.took[at] = append(g.took[at], s)
		}
	}
	return nil
}

// facts collects facts about the machine and its programs.
func (c *collectives) facts(ctx context.Context) *facts {
	f := newFacts(ctx, c.opts)
	f.add("Go", runtime.Version())
	f.add("Open MPI", measure.Said(ctx, "mpirun", "--version"))
	f.add("PyTorch, with Gloo", measure.Said(ctx, "/usr/bin/python3", "-c", "import torch; print(torch.__version__)"))
	f.last = fmt.Sprintf("- medians of %d rounds, in each of which every program is started anew and its median of %d calls counts; "+
		"ranks are processes of this host; float32, sum, in place\n\n", c.opts.rounds, c.opts.times)
	return f
}
