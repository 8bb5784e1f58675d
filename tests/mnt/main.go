package mnt

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/cli"
	"github.com/hmcfs/hmcfs/tests/spread"
)

// The names under which the test binary acts as another program.
const (
	programName = "hmcfs"
	helperName  = "mount.hmcfs"
	guardName   = "hmcfs-test-guard"
)

// The environment of the program under test.
const (
	// umaskEnv is the umask, in octal, with which the program starts.
	umaskEnv = "HMCFS_TEST_UMASK"
	// baseEnv is the variable with the directory for all files of one test process.
	baseEnv = "HMCFS_TEST_BASE"
)

// Main selects by the name that the process was started under: it runs the tests of a package,
// each in a process of its own, or the program, or one of the tests' own programs, which more
// holds by name. The tests named first, which should be those that take longest, start before the
// others. It does not return.
func Main(m *testing.M, first []string, more ...map[string]func()) {
	// As in cmd/hmcfs, the first thread only handles signals.
	runtime.LockOSThread()
	programs := map[string]func(){programName: program, helperName: program, guardName: guard}
	for _, p := range more {
		maps.Copy(programs, p)
	}
	if programs[filepath.Base(os.Args[0])] == nil {
		if code, done := spread.Tests(first...); done {
			os.Exit(code)
		}
		if err := isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testscript.Main(tests{m}, programs)
}

// tests wraps a package's tests with the guard.
type tests struct{ m *testing.M }

// Run runs the tests.
func (r tests) Run() int {
	stop, err := startGuard()
	if err != nil {
		fmt.Fprintf(os.Stderr, "start the guard of the tests' mounts: %v\n", err)
		return 1
	}
	defer stop()
	return r.m.Run()
}

// program runs hmcfs.
func program() {
	if text := os.Getenv(umaskEnv); text != "" {
		mask, err := strconv.ParseUint(text, 8, 12)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s=%q: %v\n", umaskEnv, text, err)
			os.Exit(1)
		}
		unix.Umask(int(mask))
	}
	env := cli.SystemEnv()
	env.WrapDevice = wrapDevice(os.Getenv(faultsEnv))
	os.Exit(cli.Run(context.Background(), env))
}

// Itself returns a command that runs the test binary under one of its names.
func Itself(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{name}, args...)
	return cmd
}
