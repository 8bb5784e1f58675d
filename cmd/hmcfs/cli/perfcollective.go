package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/env"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/region"
)

// gradientsName is the operation that is not a single collective.
const gradientsName = "gradients"

// collectiveFlags select the measurements.
type collectiveFlags struct {
	perf.CollectiveOptions

	operations []string
	sizes      string
	dtype      string
	memory     string
	algorithm  string
	report     string
	csv        string
	strict     bool
	bounced    bool
}

func (a *app) perfCollectiveVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "collective [--operation NAME] [--sizes SIZES] [--memory KIND] [--report FILE] [--json]",
		Short: "Measure collectives between the ranks of a job",
		Long: "Measure all-reduce and the other collectives as one rank of a job; see `hmcfs run`. Times are\n" +
			"medians of the slowest rank, and every element of every result is checked. Rank 0 prints the\n" +
			"report; as hmcfs run puts the rank before each line, programs should read the file of --report.\n" +
			"Bus bandwidth is computed as in nccl-tests; a GB is 1e9 bytes. BY names what chose the\n" +
			"algorithm: the cost model, an option, or a plan if it is measured only for comparison.",
		Example: "  hmcfs run --nranks 2 --transport tcp -- \\\n    hmcfs perf collective --sizes 1MiB,64MiB\n" +
			"  hmcfs run --nranks 4 -- \\\n    hmcfs perf collective --compare --private --sizes 1KiB..16MiB\n" +
			"  hmcfs run --nranks 2 -- \\\n    hmcfs perf collective --memory sim:0,size=1GiB --bounced --sizes 16MiB",
		Args: arguments(0, 0, "no arguments"),
	}
	var f collectiveFlags
	f.add(cmd)
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, _ []string) (err error) {
		o, err := f.options()
		if err != nil {
			return usage(err)
		}
		jo, err := job.FromEnv(a.Getenv)
		if err != nil {
			if a.Getenv("HMCFS_RANK") == "" {
				return usage(errors.New("this process is not a rank of a job; start it with `hmcfs run --nranks N -- hmcfs perf collective`"))
			}
			return usage(inPlainWords(err))
		}
		set, err := env.Parse(a.Getenv)
		if err != nil {
			return usage(err)
		}
		j, err := job.Init(ctx, set.Job(jo))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, j.Close()) }() //nolint:contextcheck // cleanup must not depend on the context
		rows, err := f.measure(ctx, j, set, o)
		if err != nil || j.World().Rank() != 0 {
			return err
		}
		return f.print(a, rows, *asJSON)
	})
}

// collectiveReport is the report in JSON.
type collectiveReport struct {
	Rows []perf.CollectiveRow `json:"rows"`
}

// print writes the report to its destination.
func (f *collectiveFlags) print(a *app, rows []perf.CollectiveRow, asJSON bool) error {
	if f.csv != "" {
		if err := writeTo(f.csv, func(w io.Writer) error { return perf.WriteCollectivesCSV(w, rows) }); err != nil {
			return err
		}
	}
	if f.report != "" {
		text, err := json.Marshal(collectiveReport{rows})
		if err == nil {
			err = os.WriteFile(f.report, text, 0o600)
		}
		return err
	}
	return answer(a.Stdout, asJSON, collectiveReport{rows}, printCollectives)
}

// measured returns the names of the operations that can be measured.
func measured() []string {
	kinds := []plan.Kind{plan.AllReduce, plan.ReduceScatter, plan.AllGather, plan.Broadcast, plan.Reduce, plan.AllToAll, plan.Barrier}
	return append(mapped(kinds, plan.Kind.String), gradientsName)
}

func (f *collectiveFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.operations, "operation", []string{plan.AllReduce.String(), plan.Barrier.String()},
		"Measure this: "+strings.Join(measured(), ", ")+", which is 1000 tensors of 16 KiB with and without fusion; may be given several times.")
	flags.StringVar(&f.sizes, "sizes", "8,1KiB,64KiB,1MiB,16MiB,64MiB", "Total sizes: a list such as 8,64KiB,1GiB, or a range such as 8..1GiB, which grows by a factor of eight, or 8..1GiB:2, by two.")
	flags.StringVar(&f.dtype, "dtype", elem.Float32.String(), "Element type.")
	flags.StringVar(&f.memory, "memory", string(perf.Host), "Measure this memory: host, or a device such as sim:0,size=1GiB.")
	flags.StringVar(&f.algorithm, "algorithm", "", "Use this algorithm, such as ring. Default: the fastest by the cost model.")
	flags.BoolVar(&f.Compare, "compare", false, "Also measure every other algorithm that can do the same operation, in turn.")
	flags.BoolVar(&f.bounced, "bounced", false, "Also measure, in turn, the operation without direct access to device memory: copy everything to the host, combine it there, and copy it back.")
	flags.StringVar(&f.csv, "csv", "", "Write a CSV file with the columns of HMC's benchmark.")
	flags.StringVar(&f.report, "report", "", "Write the report as JSON to this file instead of printing it.")
	flags.IntVar(&f.Rounds, "rounds", 20, "Number of measurements of each size.")
	flags.IntVar(&f.WarmUp, "warm-up", 5, "Number of iterations before each size that are not counted.")
	flags.BoolVar(&f.Apart, "apart", false, "Write results to separate memory. Default: in place.")
	flags.BoolVar(&f.Private, "private", false, "Don't share the memory with the other ranks in advance.")
	flags.BoolVar(&f.strict, "strict", false, "Combine in the order of the ranks.")
}

// options returns the options of the flags, except for the memory.
func (f *collectiveFlags) options() (perf.CollectiveOptions, error) {
	o := f.CollectiveOptions
	var faults []error
	for _, name := range f.operations {
		var k plan.Kind
		if name != gradientsName {
			if err := k.UnmarshalText([]byte(name)); err != nil {
				faults = append(faults, fmt.Errorf("--operation: %q is unknown; use one of %s", name, strings.Join(measured(), ", ")))
			}
			o.Kinds = append(o.Kinds, k)
		}
	}
	var err error
	if o.Type, err = elem.ParseType(f.dtype); err != nil {
		faults = append(faults, fmt.Errorf("--dtype: %w", inPlainWords(err)))
	}
	if o.Sizes, err = perf.ParseSizes(f.sizes); err != nil {
		faults = append(faults, err)
	}
	if f.algorithm != "" && !plan.Algorithm(f.algorithm).Known() {
		faults = append(faults, noAlgorithm(f.algorithm))
	}
	if f.bounced && f.memory == string(perf.Host) {
		faults = append(faults, errors.New("--bounced: host memory is not copied through the host; name a device with --memory"))
	}
	if f.Rounds < 1 || f.WarmUp < 0 {
		faults = append(faults, fmt.Errorf("--rounds %d, --warm-up %d: use 1 or more, and 0 or more", f.Rounds, f.WarmUp))
	}
	return o, errors.Join(faults...)
}

// measure executes the measurements as one rank.
func (f *collectiveFlags) measure(ctx context.Context, j *job.Job, set *env.Settings, o perf.CollectiveOptions) (rows []perf.CollectiveRow, err error) {
	memory, done, err := f.source(ctx, j)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	o.Memory = memory
	if f.bounced {
		o.Bounce = j.Table().Alloc
	}
	var last collective.Report
	g, err := collective.New(ctx, j.World().Fabric(), set.Options(collective.Options{
		Algorithm: plan.Algorithm(f.algorithm), Strict: f.strict,
		Observe: func(r *collective.Report) { last = *r },
	}))
	if err != nil {
		return nil, err
	}
	m, err := perf.NewMeter(ctx, g, &last, o)
	if err != nil {
		return nil, errors.Join(err, g.Close()) //nolint:contextcheck // as above
	}
	// The group keeps the memory that it shares until it is closed.
	defer func() { err = errors.Join(err, g.Close(), m.Close(context.WithoutCancel(ctx))) }() //nolint:contextcheck // as above
	if rows, err = m.Collectives(ctx); err != nil || !slices.Contains(f.operations, gradientsName) {
		return rows, err
	}
	more, err := m.Gradients(ctx, j.Table())
	return append(rows, more...), err
}

// source returns a source of memory, which is valid until done is called.
func (f *collectiveFlags) source(ctx context.Context, j *job.Job) (take func(devices.Size) (*region.Buffer, error), done func() error, err error) {
	if devices.Name(f.memory) == perf.Host {
		return j.Table().Alloc, func() error { return nil }, nil
	}
	dev, err := daemon.Families(host.Options{}, nil).Open(ctx, f.memory)
	if err != nil {
		return nil, nil, err
	}
	var taken []*devices.Memory
	take = func(n devices.Size) (*region.Buffer, error) {
		mem, err := dev.Alloc(ctx, n)
		if err != nil {
			return nil, err
		}
		taken = append(taken, mem)
		return j.Table().RegisterDevice(mem.All())
	}
	done = func() error {
		errs := make([]error, 0, len(taken)+1)
		for _, mem := range taken {
			errs = append(errs, mem.Release())
		}
		return errors.Join(append(errs, dev.Close())...)
	}
	return take, done, nil
}

func printCollectives(w io.Writer, report collectiveReport) error {
	t := newTable(w, "OPERATION", "RANKS", "SIZE", "ALGORITHM", "BY", "PATH", "MEDIAN", "P99", "PREDICTED", "ALGBW GB/s", "BUSBW GB/s", "ALLOCS", "/FASTEST")
	for i := range report.Rows {
		r := &report.Rows[i]
		fastest := "-"
		if r.Fastest > 0 {
			fastest = fmt.Sprintf("%.2f", r.Fastest)
		}
		t.row(r.Kind, r.Ranks, r.Bytes, r.Algorithm, r.Because, r.Path, inMicros(r.Seconds), inMicros(r.P99), inMicros(r.Predicted),
			fmt.Sprintf("%.2f", r.AlgorithmBandwidth/1e9), fmt.Sprintf("%.2f", r.BusBandwidth/1e9), fmt.Sprintf("%.2f", r.Allocations), fastest)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// inMicros returns a duration, rounded to a hundredth of a microsecond.
func inMicros(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(10 * time.Nanosecond)
}
