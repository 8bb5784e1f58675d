package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/runner"
	"github.com/hmcfs/hmcfs/devices"
)

// superviseName is the command with which a runner runs itself, once for each rank.
const superviseName = "supervise-rank"

type runFlags struct {
	runner.Options

	config    string
	window    string
	transport string
	bind      string
	hosts     string
	hostsFile string
	agent     string
	remote    string
	export    []string
}

func (a *app) runVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [--nranks N] [--config FILE] [--timeout TIME] [--json] [--] PROGRAM [ARGUMENT]...",
		Short: "Run a program as the ranks of a job",
		Long: "Start PROGRAM once for each rank. Its environment contains its rank, the number of ranks, a window\n" +
			"of memory that all ranks share, and addresses. The output of each rank is passed on with the rank\n" +
			"before each line, and when one rank fails all are ended. Nothing of a job is left behind, even if\n" +
			"this command is killed. A config declares buffers, their contents before the run, and the contents\n" +
			"expected after it.",
		Example: "  hmcfs run --nranks 4 -- ./train --epochs 1\n" +
			"  hmcfs run --nranks 2 --timeout 60s -- \\\n    sh -c 'echo hello from $HMCFS_RANK of $HMCFS_WORLD'\n" +
			"  hmcfs run --config treduce.yaml\n" +
			"  hmcfs run --hosts node1:2,node2:2 -- ./train",
	}
	cmd.Flags().SetInterspersed(false)
	var f runFlags
	flags := cmd.Flags()
	flags.IntVarP(&f.Ranks, "nranks", "n", 0, fmt.Sprintf("Number of ranks, 1 to %d. Default: the config's, or %d.", runner.MaxRanks, runner.DefaultRanks))
	flags.StringVar(&f.config, "config", "", "Job file, YAML or JSON.")
	flags.DurationVar(&f.Timeout, "timeout", 0, "End the run after this time. Default: the config's, or none.")
	flags.DurationVar(&f.Grace, "grace", runner.DefaultGrace, "How long a rank has to exit after SIGTERM before it is killed.")
	flags.StringVar(&f.window, "window", "", "Size of each rank's window. Default: the config's, or what its buffers need, or "+runner.DefaultWindow.String()+".")
	flags.StringVar(&f.Dir, "dir", "", "Create windows and buffers as files in this directory, such as one of a mount. Default: anonymous memory.")
	flags.StringVar(&f.LogDir, "log-dir", "", "Also write the output of each rank to rankN.log in this directory.")
	flags.StringVar(&f.Save, "save", "", "After the run, write all buffers to rank_N/NAME.bin in this directory.")
	flags.StringVar(&f.transport, "transport", "auto", "Transport between ranks that use hmcfs's library: shm, tcp, or auto.")
	completeWith(cmd, "transport", "auto", "shm", "tcp")
	flags.StringVar(&f.bind, "bind", "auto", "Give each rank processors of its own if there are enough (auto), or not (none).")
	completeWith(cmd, "bind", "auto", "none")
	f.addHosts(flags)
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		if slices.Contains(args[:min(1, len(args))], "") {
			return usage(errors.New("hmcfs run: the program's name is empty; was a variable not set?"))
		}
		if cmd.Flags().Changed("nranks") && f.Ranks == 0 {
			return usage(fmt.Errorf("--nranks 0: use 1 to %d", runner.MaxRanks))
		}
		p, err := a.runPlan(&f, args, *asJSON)
		if err != nil {
			return usage(err)
		}
		a.orderly.Store(true) // ranks are ended in order, which may take time
		report, err := runner.Run(ctx, p, a.force)
		return a.finishRun(ctx, p, report, err, *asJSON)
	})
}

// runPlan returns the job described by the flags and the config.
func (a *app) runPlan(f *runFlags, args []string, asJSON bool) (*runner.Plan, error) {
	var c *runner.Config
	var faults []error
	if f.config != "" {
		var err error
		if c, err = runner.ReadConfig(f.config); err != nil {
			return nil, err
		}
	}
	o := f.Options
	o.Program, o.Out, o.Errors = args, fileOf(a.Stdout), fileOf(a.Stderr)
	o.HostOptions = runner.HostOptions{
		TempDir: a.jobsDir(), Executable: a.executable(), Supervisor: []string{a.Args[0], superviseName, "--"},
	}
	if asJSON {
		o.Out = fileOf(a.Stderr) // standard output is for the report
	}
	if f.window != "" {
		size, err := devices.ParseSize(f.window)
		if err != nil {
			err = fmt.Errorf("--window: %w", err)
		}
		o.Window, faults = size, append(faults, err)
	}
	switch f.transport {
	case "auto":
	case "shm", "tcp":
		o.Transport = f.transport
	default:
		faults = append(faults, fmt.Errorf("--transport %q: use shm, tcp or auto", f.transport))
	}
	if f.bind != "auto" && f.bind != "none" {
		faults = append(faults, fmt.Errorf("--bind %q: use auto or none", f.bind))
	}
	o.Unbound = f.bind == "none"
	faults = append(faults, a.runHosts(f, &o))
	p, err := runner.NewPlan(o, c)
	return p, errors.Join(append(faults, err)...)
}

func (a *app) executable() string {
	if a.Executable == "" {
		return "/proc/self/exe"
	}
	return a.Executable
}

// jobsDir returns the directory for the directories of jobs: the user's runtime directory,
// or the one for temporary files. After su the runtime directory belongs to another user,
// who could replace files in the place of the job's secret.
func (a *app) jobsDir() string {
	dir := a.Getenv("XDG_RUNTIME_DIR")
	var st unix.Stat_t
	if dir != "" && len(dir) < 60 && unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR &&
		int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0 {
		return dir
	}
	return os.TempDir()
}

func (a *app) finishRun(ctx context.Context, p *runner.Plan, r *runner.Report, err error, asJSON bool) error {
	if r != nil && asJSON {
		if perr := printJSON(a.Stdout, r); perr != nil {
			return perr
		}
	}
	if r != nil && !asJSON {
		a.printRun(a.Stdout, p, r)
	}
	switch {
	case err == nil && r.Verdict != nil && !r.Verdict.Passed():
		return &codeError{code: exitWrong, err: fmt.Errorf("%d of %d elements are not as expected", r.Verdict.Wrong, r.Verdict.Compared)}
	case errors.Is(err, runner.ErrStopped):
		return ctx.Err()
	case errors.Is(err, runner.ErrTimeout):
		return &codeError{code: exitTimeout, err: err}
	case errors.Is(err, runner.ErrSize), errors.Is(err, runner.ErrProgram), errors.Is(err, runner.ErrPlace),
		errors.Is(err, runner.ErrHost) && r == nil:
		return usage(err)
	}
	return err
}

// printRun prints the lines of a run with a config, and the number of ranks that failed.
func (a *app) printRun(w io.Writer, p *runner.Plan, r *runner.Report) {
	if failed := len(r.Failed()); failed > 0 {
		fmt.Fprintf(a.Stderr, "=== %d/%d RANKS FAILED ===\n", failed, r.Ranks)
		return
	}
	if !p.Declared || len(r.Endings) < r.Ranks || slices.ContainsFunc(r.Endings, func(e runner.Ending) bool { return e.Failed() }) {
		return
	}
	fmt.Fprintf(w, "=== ALL %d RANKS COMPLETED ===\n", r.Ranks)
	if r.Verdict == nil {
		return
	}
	for _, m := range r.Verdict.First {
		fmt.Fprintf(w, "%s\n", m)
	}
	if r.Verdict.Passed() {
		fmt.Fprintf(w, "=== VERIFICATION PASSED === (%d elements)\n", r.Verdict.Compared)
		return
	}
	fmt.Fprintf(w, "=== VERIFICATION FAILED === (%d of %d elements differ)\n", r.Verdict.Wrong, r.Verdict.Compared)
}

// superviseVerb returns the command that runs between a runner and a rank.
func (a *app) superviseVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: superviseName + " -- PROGRAM [ARGUMENT]...", Short: "Supervise one rank for a runner", Hidden: true,
	}
	return runs(cmd, func(ctx context.Context, args []string) error {
		a.orderly.Store(true)
		return runner.Supervise(ctx, args, a.Getenv("HMCFS_JOB_DIR"))
	})
}
