package cli

import (
	"context"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/owner"
)

// guardName is the command with which a daemon runs itself as a separate process that may
// block on other filesystems in the daemon's place.
const guardName = "guard-descriptors"

// guardCommand returns the command of the process that receives what clients send to a
// daemon.
func (a *app) guardCommand() *exec.Cmd {
	cmd := exec.Command(a.executable())
	cmd.Args = []string{a.Args[0], guardName}
	// It only waits, and does no computation.
	cmd.Env = []string{"GOMAXPROCS=2", "GOMEMLIMIT=64MiB"}
	return cmd
}

// guardVerb returns the command that runs in that process.
func (a *app) guardVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: guardName, Short: "Receive descriptors on behalf of a daemon", Hidden: true, Args: arguments(0, 0, "no arguments"),
	}
	return runs(cmd, func(context.Context, []string) error {
		return owner.ServeGuard(os.NewFile(3, "control"))
	})
}
