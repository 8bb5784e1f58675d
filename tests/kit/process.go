package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Process starts an idle process with files as its descriptors 3, 4, … It ends when kill is
// called, from any goroutine, or with the test. When kill returns, no trace of it is left.
func Process(t testing.TB, files ...*os.File) (pid int, kill func()) {
	t.Helper()
	cmd := exec.Command("cat") // until its input ends
	cmd.ExtraFiles = files
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = stdin.Close()
	})
	t.Cleanup(kill)
	return cmd.Process.Pid, kill
}

// Build builds the program in a directory without cgo, with further flags of go build, and returns the path of the
// binary. It is removed at the end of the test.
func Build(t testing.TB, folder string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(folder))
	build := exec.Command("go", slices.Concat([]string{"build", "-o", out}, flags, []string{folder})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", folder, err, text)
	}
	return out
}

// Memfd creates shared memory with the content of a seed. It is closed with the test.
func Memfd(t testing.TB, seed uint64, size int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(Bytes(seed, 0, size)); err != nil {
		t.Fatal(err)
	}
	return f
}

// KillHolders kills the processes that would start daemons below a directory again.
func KillHolders(base string) {
	KillBelow(base, func(args []string) bool { return slices.Contains(args, "hold-descriptors") })
}

// KillBelow kills the processes that are meant, of those whose arguments name something below a
// directory.
func KillBelow(base string, meant func(args []string) bool) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return
	}
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(line), "\x00")
		below := func(arg string) bool { return strings.Contains(arg, base+"/") }
		if !slices.ContainsFunc(args[1:], below) || !meant(args) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended on its own
		}
	}
}

// stopLimit bounds the time that a process may take to stop.
const stopLimit = time.Minute

// Stop stops a process until proceed is called, at the latest at the end of the test.
func Stop(t testing.TB, pid int) (proceed func()) {
	t.Helper()
	proceed = sync.OnceFunc(func() {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Errorf("let process %d go on: %v", pid, err)
		}
	})
	t.Cleanup(proceed)
	if err := StopProcess(pid); err != nil {
		t.Fatal(err)
	}
	return proceed
}

// StopProcess stops a process and waits until it has stopped. The signal alone is not enough:
// running threads continue for a moment, and may still answer requests.
func StopProcess(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for wait := newBackoff(stopLimit); ; {
		err := EveryThread(pid, "stat", func(stat string) bool { return strings.Contains(stat, ") T ") })
		if err == nil || !wait.next() {
			return err
		}
	}
}

// EveryThread returns an error unless holds is true for a file of each thread of a process in
// /proc. Threads that end meanwhile are ignored.
func EveryThread(pid int, file string, holds func(text string) bool) error {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, file))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil && !holds(string(text)) {
			return fmt.Errorf("%s: %s", path, text)
		}
	}
	return nil
}
