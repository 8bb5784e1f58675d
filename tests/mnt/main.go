package mnt

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/cli"
	"github.com/hmcfs/hmcfs/tests/spread"
)

// The names under which the test binary is something else than the tests.
const (
	programName = "hmcfs"
	helperName  = "mount.hmcfs"
	guardName   = "hmcfs-test-guard"
)

// The environment of the program under test.
const (
	// umaskEnv is the umask, in octal, that the program starts with.
	umaskEnv = "HMCFS_TEST_UMASK"
	// baseEnv is the variable with the directory of all that one test process has.
	baseEnv = "HMCFS_TEST_BASE"
)

// Main runs the tests of a package, each in a process of its own, or the
// program, by the name that the process was started under; more are programs of
// the tests' own, by theirs. It does not return.
func Main(m *testing.M, more ...map[string]func()) {
	// As in cmd/hmcfs the first thread is for signals alone.
	runtime.LockOSThread()
	programs := map[string]func(){programName: program, helperName: program, guardName: guard}
	for _, p := range more {
		maps.Copy(programs, p)
	}
	if programs[filepath.Base(os.Args[0])] == nil {
		if code, done := spread.Tests(); done {
			os.Exit(code)
		}
		if err := isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testscript.Main(tests{m}, programs)
}

// tests are a package's tests with the guard around them.
type tests struct{ m *testing.M }

// Run runs them.
func (r tests) Run() int {
	stop, err := startGuard()
	if err != nil {
		fmt.Fprintf(os.Stderr, "start the guard of the tests' mounts: %v\n", err)
		return 1
	}
	defer stop()
	return r.m.Run()
}

// program is hmcfs.
func program() {
	if text := os.Getenv(umaskEnv); text != "" {
		mask, err := strconv.ParseUint(text, 8, 12)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s=%q: %v\n", umaskEnv, text, err)
			os.Exit(1)
		}
		unix.Umask(int(mask))
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	env := cli.SystemEnv()
	env.Signals = signals
	env.WrapDevice = wrapDevice(os.Getenv(faultsEnv))
	os.Exit(cli.Run(context.Background(), env))
}

// Itself is a command that runs the test binary under one of its names.
func Itself(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{name}, args...)
	return cmd
}
