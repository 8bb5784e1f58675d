package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/rankserver"
)

// rankServerName is the command that a rank in another language starts.
const rankServerName = "rank-server"

// rankServerVerb returns the command that communicates for a rank, over its standard input.
func (a *app) rankServerVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: rankServerName, Short: "Communicate for a rank in another language", Hidden: true, Args: arguments(0, 0, "no arguments"),
	}
	return runs(cmd, func(ctx context.Context, _ []string) error {
		a.orderly.Store(true)
		c, err := net.FileConn(os.Stdin)
		conn, ok := c.(*net.UnixConn)
		if err != nil || !ok {
			return usage(fmt.Errorf("%s is started by programs, with a Unix socket as its standard input", rankServerName))
		}
		// Signals of a terminal or a runner are for the rank, whose end is the end of this process.
		if unix.Getpgrp() != os.Getpid() {
			if err = unix.Setpgid(0, 0); err != nil {
				return fmt.Errorf("leave the process group of the rank: %w", err)
			}
		}
		err = rankserver.Serve(ctx, conn, a.Getenv)
		return errors.Join(err, conn.Close())
	})
}
