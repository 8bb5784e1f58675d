package kit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// RequireEnv is the environment variable that turns a skip into a failure: a comma-separated
// list of needs, or "all".
const RequireEnv = "HMCFS_REQUIRE"

// CheckEnv is the environment variable that make check sets.
const CheckEnv = "HMCFS_CHECK"

// Exhaustive reports whether to test all combinations, many rounds of random tests, or the
// largest sizes, as `make check` demands, which takes longer than a person waits for `make
// test`. Otherwise, tests that depend on it cover the same cases on a small scale.
func Exhaustive() bool { return os.Getenv(CheckEnv) != "" }

// Rounds returns a number of repetitions, or an amount: short with -short, all for an
// exhaustive test, otherwise usual.
func Rounds(short, usual, all int) int {
	switch {
	case testing.Short():
		return short
	case Exhaustive():
		return all
	}
	return usual
}

// Require skips the test unless the machine meets every need; if HMCFS_REQUIRE demands a need
// that is missing, the test fails. The needs are:
//
//	fuse         /dev/fuse can be opened, and mounted with
//	passthrough  the kernel grants FUSE passthrough to this process
//	opencl       an OpenCL loader and at least one driver
//	hip          AMD's libamdhip64, with a card or without
//	cuda         an NVIDIA driver and a card
//	ucx          UCX's libucp
//	ucx-headers  UCX's headers, and a C compiler
//	cgroup       a memory cgroup can be made
//	root         effective uid 0 with CAP_SYS_ADMIN
//	numpy        python3 with NumPy
//	tool:NAME    a program in the PATH
func Require(t testing.TB, needs ...string) {
	t.Helper()
	for _, need := range needs {
		err := Missing(need)
		switch {
		case err == nil:
		case errors.Is(err, errUnknownNeed) || Demanded(os.Getenv(RequireEnv), need):
			t.Fatalf("need %s: %v", need, err)
		default:
			t.Skipf("need %s: %v", need, err)
		}
	}
}

// Demanded reports whether a value of HMCFS_REQUIRE includes the need. "all" includes every
// need except cuda, which no package can provide to a test machine.
func Demanded(list, need string) bool {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == need || name == "all" && need != "cuda" {
			return true
		}
	}
	return false
}

// errUnknownNeed reports a mistake in the test itself.
var errUnknownNeed = errors.New("kit: no such need")

// Missing returns nil if the machine meets the need, and otherwise the reason. The conditions
// of scripts are built on it, too.
func Missing(need string) error {
	switch need {
	case "fuse":
		return missingFUSE()
	case "passthrough":
		return missingPassthrough()
	case "opencl":
		return missingOpenCL()
	case "hip":
		return missingHIP()
	case "cuda":
		return missingCUDA()
	case "ucx":
		return missingLibrary("libucp.so.0")
	case "ucx-headers":
		return missingUCXHeaders()
	case "cgroup":
		return missingGroup()
	case "root":
		return missingRoot()
	case "fsspec", "numpy", "pip", "pytest", "redis", "setuptools", "torch", "wheel":
		return missingModule(need)
	}
	if tool, ok := strings.CutPrefix(need, "tool:"); ok {
		_, err := exec.LookPath(tool)
		return err
	}
	return fmt.Errorf("%w: %q", errUnknownNeed, need)
}

func missingFUSE() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if missingRoot() == nil {
		return nil
	}
	_, err = exec.LookPath("fusermount3")
	return err
}

// passthroughSince is the first kernel with FUSE passthrough, as major and
// minor number.
const passthroughSince = "6.9"

func missingPassthrough() error {
	if err := errors.Join(missingFUSE(), missingRoot()); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	release := unix.ByteSliceToString(name.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("parse kernel release %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 9 {
		return fmt.Errorf("kernel %s is older than %s", release, passthroughSince)
	}
	return nil
}

func missingOpenCL() error {
	if err := missingLibrary("libOpenCL.so.1"); err != nil {
		return err
	}
	drivers, err := filepath.Glob("/etc/OpenCL/vendors/*.icd")
	if err != nil {
		return err
	}
	if len(drivers) == 0 && os.Getenv("OCL_ICD_VENDORS") == "" {
		return errors.New("no OpenCL driver in /etc/OpenCL/vendors")
	}
	return nil
}

func missingHIP() error {
	var errs []error
	for _, version := range []string{"5", "6", "7"} {
		err := missingLibrary("libamdhip64.so." + version)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func missingCUDA() error {
	if err := missingLibrary("libcuda.so.1"); err != nil {
		return err
	}
	_, err := os.Stat("/dev/nvidiactl")
	return err
}

func missingUCXHeaders() error {
	_, err := exec.LookPath("gcc")
	if err == nil {
		_, err = os.Stat("/usr/include/ucp/api/ucp.h")
	}
	return err
}

func missingGroup() error {
	g, err := NewMemoryGroup("hmcfs-need", 1<<30)
	if err != nil {
		return err
	}
	return g.Remove()
}

// missingLibrary looks for a shared library in the directories of the loaders of Debian and
// other distributions.
func missingLibrary(name string) error {
	dirs := strings.Split(os.Getenv("LD_LIBRARY_PATH"), ":")
	for _, pattern := range []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/usr/local/cuda/lib64"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		dirs = append(dirs, found...)
	}
	dirs = append(dirs, "/lib64", "/usr/lib64", "/usr/lib", "/usr/local/lib")
	if slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return dir != "" && err == nil
	}) {
		return nil
	}
	return fmt.Errorf("no %s", name)
}

// capSysAdmin is the number of CAP_SYS_ADMIN, which mounting needs.
const capSysAdmin = 21

func missingRoot() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("effective uid is %d", uid)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		value, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		var caps uint64
		if _, err := fmt.Sscanf(strings.TrimSpace(value), "%x", &caps); err != nil {
			return fmt.Errorf("parse %q: %w", line, err)
		}
		if caps&(1<<capSysAdmin) == 0 {
			return errors.New("CAP_SYS_ADMIN is not in the effective set")
		}
		return nil
	}
	return errors.New("no CapEff line in /proc/self/status")
}

// Python returns the interpreter that has Debian's python3-numpy, which is invisible to another
// one earlier in PATH; if there is none, the one in PATH.
func Python() string { return python() }

// python looks once: a start of Python costs more than many a test.
//
//nolint:gochecknoglobals // the machine has the same interpreters for all tests
var python = sync.OnceValue(func() string {
	const debians = "/usr/bin/python3"
	if lacks(debians, "numpy") == nil {
		return debians
	}
	return "python3"
})

func missingModule(name string) error { return lacks(Python(), name) }

// lacks looks for a module without importing it, which takes seconds for some.
func lacks(python, module string) error {
	const look = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec(sys.argv[1]) else 'there is no module ' + sys.argv[1])"
	out, err := exec.Command(python, "-c", look, module).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
