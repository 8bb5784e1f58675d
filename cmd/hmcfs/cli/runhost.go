package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/runner"
)

// runHostName is the command with which a runner executes its part on another machine,
// through an agent such as ssh.
const runHostName = "run-host"

// defaultAgent connects to other machines by default. It does not ask for a password, as
// nobody could enter it.
const defaultAgent = "ssh -x -o BatchMode=yes"

// addHosts adds the flags of jobs on several machines.
func (f *runFlags) addHosts(flags *pflag.FlagSet) {
	flags.StringVar(&f.hosts, "hosts", "", "Run on these machines, each with its number of ranks: a:2,b:2. localhost is this machine. Default: only this machine.")
	flags.StringVar(&f.hostsFile, "hosts-file", "", "Like --hosts, from a file with a line NAME slots=N address=IP for each machine.")
	flags.StringVar(&f.agent, "agent", defaultAgent, "Command that runs a command on another machine; its arguments are the machine's name and that command.")
	flags.StringVar(&f.remote, "remote-hmcfs", "hmcfs", "Path of hmcfs on the other machines.")
	flags.StringVar(&f.WorkDir, "workdir", "", "Current directory of the ranks on other machines. Default: that of this command.")
	flags.StringSliceVar(&f.export, "export", nil, "With --hosts: also set these variables for all ranks: NAME, or NAME=VALUE.")
}

// runHosts sets the options about machines.
func (a *app) runHosts(f *runFlags, o *runner.Options) error {
	var err error
	switch {
	case f.hosts != "" && f.hostsFile != "":
		return errors.New("--hosts and --hosts-file: use one of them")
	case f.hosts != "":
		if o.Hosts, err = runner.ParseHosts(f.hosts); err != nil {
			return fmt.Errorf("--hosts: %w", err)
		}
	case f.hostsFile != "":
		if o.Hosts, err = runner.ReadHosts(f.hostsFile); err != nil {
			return fmt.Errorf("--hosts-file: %w", err)
		}
	default:
		return errors.Join(needsHosts("--workdir", f.WorkDir != ""), needsHosts("--export", len(f.export) > 0))
	}
	o.Agent = strings.Fields(f.agent)
	if len(o.Agent) == 0 {
		return fmt.Errorf("--agent %q: name a command, such as %q", f.agent, defaultAgent)
	}
	if f.remote == "" || strings.HasPrefix(f.remote, "-") {
		return fmt.Errorf("--remote-hmcfs %q: use the path of hmcfs on the other machines", f.remote)
	}
	o.RemoteCommand = []string{f.remote, runHostName}
	if o.WorkDir == "" {
		if o.WorkDir, err = os.Getwd(); err != nil {
			return fmt.Errorf("the current directory: %w; use --workdir", err)
		}
	}
	o.Export, err = a.exported(f.export)
	return err
}

// needsHosts returns an error if a flag was set.
func needsHosts(flag string, set bool) error {
	if !set {
		return nil
	}
	return fmt.Errorf("%s: it is for ranks on several machines; use it with --hosts", flag)
}

// exported returns the variables for ranks on other machines: the named ones, and those of
// the hmcfs library that are set for this command.
func (a *app) exported(names []string) ([]string, error) {
	var out []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if runner.Knob(name) {
			out = append(out, entry)
		}
	}
	for _, entry := range names {
		name, value, given := strings.Cut(entry, "=")
		if !given {
			value = a.Getenv(name)
		}
		if name == "" || strings.ContainsRune(entry, 0) || runner.Reserved(name) {
			return nil, fmt.Errorf("--export %q: not the name of a variable that you can set", name)
		}
		out = append(out, name+"="+value)
	}
	return out, nil
}

// runHostVerb returns the command that executes a runner's part on this machine.
func (a *app) runHostVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: runHostName, Short: "Run a job's ranks on this machine for a runner elsewhere", Hidden: true, Args: arguments(0, 0, "no arguments"),
	}
	return runs(cmd, func(ctx context.Context, _ []string) error {
		a.orderly.Store(true)
		in, out, err := ownStreams()
		if err != nil {
			return err
		}
		return runner.ServeHost(ctx, in, out, &runner.HostOptions{
			TempDir: a.jobsDir(), Executable: a.executable(), Supervisor: []string{a.Args[0], superviseName, "--"}, Getenv: a.Getenv,
		})
	})
}

// ownStreams reserves standard input and output for the protocol between runner and host:
// anything else written to standard output would corrupt it, and a write to a runner that
// has exited would end this process.
func ownStreams() (in, out *os.File, err error) {
	var files [2]*os.File
	for fd := range files {
		var own int
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, nil, fmt.Errorf("take over standard stream %d: %w", fd, err)
		}
		// When the connection ends, it interrupts a pending read or write.
		if err = unix.SetNonblock(own, true); err != nil {
			return nil, nil, err
		}
		files[fd] = os.NewFile(uintptr(own), "runner")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	err = errors.Join(unix.Dup3(int(null.Fd()), 0, 0), unix.Dup3(2, 1, 0), null.Close())
	return files[0], files[1], err
}
