// Command hmcfs mounts device memory as files. Everything is in package cli.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/cli"
)

// main reserves the process's first thread, which only waits for signals. The kernel
// prefers that thread for delivering a signal; if it waited in a request to a filesystem
// that does not answer, a signal would wake it but never be handled, and only SIGKILL could
// end the process.
func main() {
	runtime.LockOSThread() // main begins on the first thread
	os.Exit(cli.Run(context.Background(), cli.SystemEnv()))
}
