package cli

import (
	"io"
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// Env is all that the command line takes from its process.
type Env struct {
	// Args are the program's name and its arguments.
	Args []string
	// Stdin, Stdout and Stderr are the standard streams.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Getenv reads the environment.
	Getenv func(string) string
	// UID is the user who runs the program.
	UID int
	// Signals carries SIGINT and SIGTERM; the first asks to end, the second
	// to end at once. Nil is none.
	Signals <-chan os.Signal
	// Executable is run for the daemon in the background. Empty is the
	// running program itself.
	Executable string
	// WrapDevice, if not nil, is put around every device of a mount: tests
	// inject faults with it.
	WrapDevice func(devices.Device) devices.Device
}

// SystemEnv is the environment of the running process.
func SystemEnv() Env {
	return Env{
		Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, UID: os.Geteuid(),
	}
}
