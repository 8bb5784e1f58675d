// Command hmcfs mounts device memory as files. Everything is in package cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/cli"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	env := cli.SystemEnv()
	env.Signals = signals
	os.Exit(cli.Run(context.Background(), env))
}
