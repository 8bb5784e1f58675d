package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/runner"
)

func (a *app) barrierVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "barrier [--timeout TIME] [NAME]",
		Short: "Wait for all other ranks of a job",
		Long: "Return when every rank of the job has run this command with the same NAME. It is for ranks that\n" +
			"are shell scripts; programs have their own barriers. After an error it can be run again.",
		Args: arguments(0, 1, "at most one NAME"),
	}
	timeout := cmd.Flags().Duration("timeout", 2*time.Minute, "How long to wait; 0 waits forever.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		socket := a.Getenv("HMCFS_BARRIER")
		rank, err := strconv.Atoi(a.Getenv("HMCFS_RANK"))
		if socket == "" || err != nil {
			return usage(errors.New("hmcfs barrier: this process is not a rank of a job; see hmcfs run --help"))
		}
		if *timeout < 0 {
			return usage(fmt.Errorf("--timeout %v: use 0 or more", *timeout))
		}
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		err = runner.Barrier(ctx, socket, name, rank, *timeout)
		if missing, ok := errors.AsType[*runner.MissingError](err); ok && !missing.Ended {
			return &codeError{code: exitTimeout, err: err}
		}
		return err
	})
}
