// Command hmcfs mounts device memory as files. Everything is in package cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/cli"
)

// main keeps the process's first thread for itself, which only listens for
// signals. The kernel hands a signal to that thread before all others, and one
// that waits in a request to a file system that does not answer is woken by it
// and never handles it: the process could not be ended but by SIGKILL.
func main() {
	runtime.LockOSThread() // main begins on the first thread
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	env := cli.SystemEnv()
	env.Signals = signals
	os.Exit(cli.Run(context.Background(), env))
}
