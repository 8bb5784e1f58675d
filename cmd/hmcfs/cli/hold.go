package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
)

// holdName is the command with which a daemon runs the process that keeps descriptors for the
// daemon that follows it.
const holdName = "hold-descriptors"

// holdCommand returns the command of that process.
func (m *mountRun) holdCommand() *exec.Cmd {
	cmd := exec.Command(m.executable())
	cmd.Args = []string{m.Args[0], holdName}
	// Its log is that of the daemon.
	cmd.Stdout, cmd.Stderr = m.Stdout, m.Stderr
	// It only waits, and does no computation.
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=50"}
	return cmd
}

// startAgain returns how the daemon is started again when it dies, with the same options and in the
// same directory. It must be called before the daemon leaves that directory.
func (m *mountRun) startAgain() (holder.Start, error) {
	if m.foreground && m.Getenv("NOTIFY_SOCKET") != "" {
		return holder.Start{}, nil // the service manager does
	}
	dir, err := os.Getwd()
	if err != nil {
		return holder.Start{}, fmt.Errorf("find the working directory: %w", err)
	}
	path, err := os.Executable() // not what the arguments name: an upgrade leaves those
	if err != nil {
		return holder.Start{}, fmt.Errorf("find the program: %w", err)
	}
	args := slices.DeleteFunc(slices.Clone(m.Args), func(arg string) bool { return strings.HasPrefix(arg, "--ready-fd") })
	if !m.foreground {
		args = slices.Insert(args, 2, "--ready-fd=0")
	}
	return holder.Start{Path: path, Args: args, Env: append(os.Environ(), holder.RevivedEnv+"=1"), Dir: dir}, nil
}

// holdVerb returns the command that runs in that process.
func holdVerb(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: holdName, Short: "Keep descriptors for the daemon that follows one", Hidden: true, Args: arguments(1, 1, "the SOCKET that it listens on"),
	}
	return runs(cmd, func(ctx context.Context, _ []string) error {
		return holder.Run(context.WithoutCancel(ctx), ctx.Done(), newLogger(a.Stderr, "info", false))
	})
}
