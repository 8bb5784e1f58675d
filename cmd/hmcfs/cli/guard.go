package cli

import (
	"context"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/owner"
)

// guardName is the verb by which a daemon calls itself, for a process that may
// wait for other file systems in its place.
const guardName = "guard-descriptors"

// guardCommand is the process that takes what clients send to a daemon.
func (a *app) guardCommand() *exec.Cmd {
	cmd := exec.Command(a.executable())
	cmd.Args = []string{a.Args[0], guardName}
	// It waits, and computes nothing.
	cmd.Env = []string{"GOMAXPROCS=2", "GOMEMLIMIT=64MiB"}
	return cmd
}

// guardVerb is that process.
func (a *app) guardVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: guardName, Short: "Receive descriptors on behalf of a daemon", Hidden: true, Args: arguments(0, 0, "no arguments"),
	}
	cmd.RunE = running(func(context.Context, []string) error {
		return owner.ServeGuard(os.NewFile(3, "control"))
	})
	return cmd
}
