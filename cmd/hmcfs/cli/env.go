package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/hmcfs/hmcfs/devices"
)

// Env is everything that the command line uses of its process.
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
	// Signals delivers SIGINT, SIGTERM and SIGHUP; the first one requests an orderly end, the
	// second one an immediate end. Nil delivers none.
	Signals <-chan os.Signal
	// Executable is the program to run as the daemon in the background. Empty means the
	// running program itself.
	Executable string
	// WrapDevice, if not nil, wraps every device of a mount: tests inject faults with it.
	WrapDevice func(devices.Device) devices.Device
}

// SystemEnv returns the environment of the running process, whose signals it receives from here on.
func SystemEnv() Env {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup(1) has it
		signal.Notify(signals, syscall.SIGHUP) // a daemon whose terminal is closed ends, and does not die
	}
	return Env{
		Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, UID: os.Geteuid(), Signals: signals,
	}
}
