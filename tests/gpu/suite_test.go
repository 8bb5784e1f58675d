package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	// The go command reruns this test when hmcfs has changed.
	_ "github.com/hmcfs/hmcfs/cmd/hmcfs/cli"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// bundle builds the programs that are carried to a GPU machine, once per test.
func bundle(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("what is built here has neither the race detector nor the invariant checks")
	}
	kit.Require(t, "fuse", "root", "tool:cc")
	seen(t, "native", "run.sh", "bundle.sh", "../recipes")
	dir := t.TempDir()
	cmd := exec.Command("./bundle.sh", dir)
	cmd.Env = append(os.Environ(), "LDFLAGS=-s -w") // as the Makefile has tests built
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("bundle.sh: %v\n%s", err, out)
	}
	return dir
}

// seen opens files that other processes use, so that the go command reruns the test when one
// has changed.
func seen(t *testing.T, places ...string) {
	t.Helper()
	for _, place := range places {
		err := filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				_, err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runner is one call of run.sh with its own place for temporary files.
type runner struct {
	cmd     *exec.Cmd
	out     strings.Builder
	scratch string
}

// newRunner prepares run.sh. It checks that nothing is left of it at the end of the test.
func newRunner(t *testing.T, dir string, args ...string) *runner {
	t.Helper()
	// Not t.TempDir: the admin socket's path would be too long.
	scratch, err := os.MkdirTemp("", "gpu") //nolint:usetesting // that one's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{cmd: exec.Command(filepath.Join(dir, "run.sh"), args...), scratch: scratch}
	t.Cleanup(func() {
		if left, err := filepath.Glob(scratch + "/*"); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		if left := r.links(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		kit.Eventually(t, time.Minute, func() error { // a killed run takes a moment
			if left := r.processes(); len(left) > 0 {
				return fmt.Errorf("left behind: %v", left)
			}
			return nil
		})
		if err := os.RemoveAll(scratch); err != nil {
			t.Error(err)
		}
	})
	r.cmd.Env = append(os.Environ(), "TMPDIR="+scratch)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	return r
}

// links returns the links by which a daemon's runtime directory is found.
func (r *runner) links() []string {
	var left []string
	for _, base := range []string{"/run", os.Getenv("XDG_RUNTIME_DIR")} {
		all, _ := filepath.Glob(filepath.Join(base, "hmcfs", "*")) // the pattern is valid
		for _, link := range all {
			if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, r.scratch+"/") {
				left = append(left, link)
			}
		}
	}
	return left
}

// run runs it to its end and returns the exit status and its output.
func (r *runner) run(t *testing.T) (int, string) {
	t.Helper()
	err := r.cmd.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	return r.cmd.ProcessState.ExitCode(), r.out.String()
}

// runs runs the suite with additional variables, checks its exit status, and returns its
// output.
func runs(t *testing.T, dir string, want int, env []string, args ...string) string {
	t.Helper()
	r := newRunner(t, dir, args...)
	r.cmd.Env = append(r.cmd.Env, env...)
	status, said := r.run(t)
	if status != want {
		t.Errorf("exit status %d\n%s", status, said)
	}
	return said
}

// has fails the test for every text that is missing in a report.
func has(t *testing.T, report string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(report, text) {
			t.Errorf("no %q in\n%s", text, report)
		}
	}
}

func TestSuite(t *testing.T) {
	dir := bundle(t)
	t.Run("simulated device", func(t *testing.T) {
		out := t.TempDir()
		said := runs(t, dir, 0, nil, "--device", "sim0", "--quick", "--out", out)
		has(t, said, "| what is written is read, by odd calls and by a map | 1 B to 5.0 MiB |  | ok |",
			"paths h2d, d2d, d2h", " of tmpfs; through the mount ", " 0 failed")
		passes(t, said, sharingRows(" (host, memfd)")...)
		passes(t, said, sharingRows(" (sim0, memfd)")...)
		if kit.Missing("numpy") == nil {
			passes(t, said, "recipe numpy_bind", "recipe numpy_export")
		}
		has(t, said, "| recipe torch_bind | sim0 is no card of torch's |  | not run |")
		if report, err := os.ReadFile(filepath.Join(out, "report.md")); err != nil || !strings.Contains(said, string(report)) {
			t.Errorf("the report in a file is another one: %v", err)
		}
	})
	t.Run("OpenCL", func(t *testing.T) {
		if !kit.Exhaustive() {
			t.Skip("as on the simulated device: make check")
		}
		kit.Require(t, "opencl")
		runs(t, dir, 0, nil, "--device", "ocl0", "--quick")
	})
	t.Run("CUDA", func(t *testing.T) { onCUDA(t, dir) })
	t.Run("no such device", func(t *testing.T) {
		has(t, runs(t, dir, exitNoDevice, nil, "--device", "ocl99", "--quick"), "ocl99: no such device here")
	})
	t.Run("a program is missing", func(t *testing.T) {
		env := []string{"GPU_TOOLS=" + t.TempDir(), "HMCFS=" + filepath.Join(dir, "hmcfs")}
		has(t, runs(t, dir, exitUsage, env, "--quick"), "is not there; make gpu-bundle")
	})
	t.Run("a program does not run", func(t *testing.T) { tooOld(t, dir) })
	t.Run("no mount", func(t *testing.T) { withoutFUSE(t, dir) })
	t.Run("no right to descriptors", func(t *testing.T) { withoutRights(t, dir) })
	t.Run("a wrong byte is noticed", func(t *testing.T) { wrongByte(t, dir) })
	t.Run("wrong memory is noticed", func(t *testing.T) { wrongMemory(t, dir) })
	for name, stop := range map[string]func(*runner) error{
		"interrupted":         func(r *runner) error { return r.cmd.Process.Signal(unix.SIGINT) },
		"terminated":          func(r *runner) error { return r.cmd.Process.Signal(unix.SIGTERM) },
		"the suite is killed": func(r *runner) error { return unix.Kill(r.process("gpu"), unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			if !stopped(t, dir, stop) {
				t.Error("it has ended before it was stopped")
			}
		})
	}
	t.Run("the daemon hangs", func(t *testing.T) {
		hang := func(r *runner) error { return unix.Kill(r.process("mount"), unix.SIGSTOP) }
		// A busy machine may need longer than the limit until there is a daemon.
		for limit := 2; !stopped(t, dir, hang, fmt.Sprint("LIMIT=", limit), "GRACE=1"); limit *= 2 {
		}
	})
}

// withoutFUSE runs the suite where /dev/fuse can't be used.
func withoutFUSE(t *testing.T, dir string) {
	t.Helper()
	r := newRunner(t, dir, "--device", "sim0", "--quick")
	r.cmd = exec.Command("unshare", "--mount", "sh", "-c", `mount --bind /dev/null /dev/fuse && exec "$@"`, "sh",
		filepath.Join(dir, "run.sh"), "--device", "sim0", "--quick")
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = append(os.Environ(), "TMPDIR="+r.scratch), &r.out, &r.out
	status, said := r.run(t)
	if status != exitUntested {
		t.Errorf("exit status %d", status)
	}
	has(t, said, "| everything through a mount | ", "| not run |", "NOT TESTED", "- everything through a mount: ")
}

// only returns the arguments of a run that must notice a fault: of the rows that show it, and of all in make check.
func only(rows string) []string {
	args := []string{"--device", "sim0", "--quick"}
	if !kit.Exhaustive() {
		args = append(args, "--rows", rows)
	}
	return args
}

// withoutRights uses a truth that can't duplicate descriptors of other processes, as in a
// container without that right.
func withoutRights(t *testing.T, dir string) {
	t.Helper()
	tools := withProgram(t, dir, "truth", `if [ "$1" = open ]; then echo "error: take descriptor: Operation not permitted" >&2; exit 1; fi
exec `+dir+`/truth "$@"`)
	said := runs(t, dir, exitUntested, []string{"GPU_TOOLS=" + tools}, only("^cp in|^recipe")...)
	has(t, said, "| bind and export (sim0, memfd) | ", "--cap-add SYS_PTRACE", "- descriptors of other processes: ", " 0 failed")
}

// tooOld uses a helper that the machine's loader refuses.
func tooOld(t *testing.T, dir string) {
	t.Helper()
	tools := withProgram(t, dir, "fileio", "echo \"$0: version \\`GLIBC_2.99' not found\" >&2; exit 1")
	said := runs(t, dir, exitUsage, []string{"GPU_TOOLS=" + tools}, "--device", "sim0", "--quick")
	has(t, said, "fileio does not run on this machine", "GLIBC_2.99", "make gpu-bundle on a machine as old as this")
}

// withProgram returns a folder with the programs in dir, one of which is replaced by a script.
func withProgram(t *testing.T, dir, name, script string) string {
	t.Helper()
	tools := t.TempDir()
	for _, program := range []string{"hmcfs", "gpu", "conformance", "truth", "cudaraw", "fileio", "recipes"} {
		if program == name {
			continue
		}
		if err := os.Symlink(filepath.Join(dir, program), filepath.Join(tools, program)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return tools
}

// wrongByte puts a cp into the path that changes one byte.
func wrongByte(t *testing.T, dir string) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\n/bin/cp \"$@\" && printf x | dd of=\"$2\" bs=1 seek=70001 conv=notrunc status=none\n"
	if err := os.WriteFile(filepath.Join(bin, "cp"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	said := runs(t, dir, exitFailed, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, only("^cp in")...)
	has(t, said, "differs at 70001: is 78, should be", "| **FAILED** |")
}

// wrongMemory uses an owner whose memory has other content than requested.
func wrongMemory(t *testing.T, dir string) {
	t.Helper()
	tools := withProgram(t, dir, "truth",
		fmt.Sprintf("case $1 in\nown) exec %[1]s/truth own $2 $3 $(($4 + 1)) $5 $6 $7;;\nesac\nexec %[1]s/truth \"$@\"", dir))
	said := runs(t, dir, exitFailed, []string{"GPU_TOOLS=" + tools}, only("^bind: ")...)
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "| bind: ") && (!strings.Contains(line, "differs at 0: is ") || !strings.Contains(line, "FAILED")) {
			t.Errorf("passed: %s", line)
		}
	}
	has(t, said, "| bind: ")
}

// stopped ends a run in the middle of its work. newRunner checks that nothing is left. It returns
// false if the run has ended before it could be stopped.
func stopped(t *testing.T, dir string, stop func(*runner) error, env ...string) bool {
	t.Helper()
	r := newRunner(t, dir, "--device", "sim0", "--quick")
	r.cmd.Env = append(r.cmd.Env, env...)
	r.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.cmd.Wait() }()
	kit.Eventually(t, time.Minute, func() bool {
		found, err := filepath.Glob(r.scratch + "/*/mnt/sim0/*")
		return err == nil && len(found) > 0 || len(done) > 0
	})
	err := stop(r)
	ended := len(done) > 0
	if err != nil && !ended {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err == nil {
			t.Error("a run that was stopped succeeds")
		}
	case <-time.After(time.Minute):
		t.Error("a run that was stopped does not end", r.cmd.Process.Kill(), <-done)
	}
	return !ended
}

// process returns the process of this run that has an argument, of which index 0 is its program; a
// number that no process has if none does.
func (r *runner) process(argument string) int {
	for pid, arguments := range r.processes() {
		if strings.HasSuffix(arguments[0], "/"+argument) || slices.Contains(arguments[1:], argument) {
			return pid
		}
	}
	return math.MaxInt32
}

// processes returns the processes that have a path in the run's scratch directory as an
// argument, with all of their arguments.
func (r *runner) processes() map[int][]string {
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	found := make(map[int][]string)
	for _, dir := range all {
		text, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // a process that has ended meanwhile has none
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && strings.Contains(string(text), "\x00"+r.scratch+"/") {
			found[pid] = strings.Split(string(text), "\x00")
		}
	}
	return found
}
