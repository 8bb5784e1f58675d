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

// main reserves the process's first thread, which only waits for signals. The kernel
// prefers that thread for delivering a signal; if it waited in a request to a filesystem
// that does not answer, a signal would wake it but never be handled, and only SIGKILL could
// end the process.
func main() {
	runtime.LockOSThread() // main begins on the first thread
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	env := cli.SystemEnv()
	env.Signals = signals
	os.Exit(cli.Run(context.Background(), env))
}
