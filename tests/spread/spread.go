package spread

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// preparedEnv is the environment variable with the directory of all processes.
const preparedEnv = "HMCFS_TEST_PREPARED"

// Main runs the tests of a package and does not return. Each prepare function is called once
// for all tests, for example to build programs. Its argument is a directory that the tests get
// from Prepared and that is removed at the end.
func Main(m *testing.M, prepare ...func(dir string) error) {
	code, err := within(prepare, func() int {
		if code, done := Tests(); done {
			return code
		}
		return m.Run()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(code)
}

// Prepared returns the directory that Main's prepare functions filled, and to which tests may add
// what other tests need too. It is empty if the tests run in one process, without such functions.
func Prepared() string { return os.Getenv(preparedEnv) }

// within calls run after everything was prepared, by this process or by the one that started
// it.
func within(prepare []func(dir string) error, run func() int) (code int, err error) {
	if len(prepare) == 0 || Prepared() != "" {
		return run(), nil
	}
	return shared(prepare, run)
}

// shared calls run with a directory for all processes.
func shared(prepare []func(dir string) error, run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "hmcfs-prepared-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Tests run programs as other users too.
	if err := os.Chmod(dir, 0o711); err != nil {
		return 0, err
	}
	for _, f := range prepare {
		if err := f(dir); err != nil {
			return 0, err
		}
	}
	if err := os.Setenv(preparedEnv, dir); err != nil {
		return 0, err
	}
	return run(), nil
}

// Tests runs each of the package's tests in its own process and returns the exit code. It
// returns false, and runs nothing, if the arguments request something that needs a single
// process. It must be called first in TestMain. The tests named first, which should be those that
// take longest, start before the others, so that the last ones to end are short.
func Tests(first ...string) (code int, done bool) {
	hearSignals()
	flag.Parse()
	if !spreadable(os.Args[1:]) {
		return 0, false
	}
	r := runner{
		args: forwarded(os.Args[1:]), out: os.Stdout, mark: flag.Lookup("test.v").Value.String() == "test2json",
		limit: flagOf[time.Duration]("test.timeout"), start: time.Now(),
	}
	names, err := r.list(chosen(os.Args[1:]))
	if err != nil {
		fmt.Fprintf(os.Stderr, "list the tests: %v\n", err)
		return 2, true
	}
	names = ordered(names, first)
	run := func() int { return r.run(names, 2*flagOf[int]("test.parallel")) }
	if Prepared() != "" {
		return run(), true
	}
	if code, err = shared(nil, run); err != nil {
		fmt.Fprintf(os.Stderr, "the directory of all tests: %v\n", err)
		return 2, true
	}
	return code, true
}

// ordered returns the names with those of first in front.
func ordered(names, first []string) []string {
	later := func(name string) bool { return !slices.Contains(first, name) }
	return append(slices.DeleteFunc(slices.Clone(names), later), slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !later(name) })...)
}

// hearSignals ensures that a terminal's signals end the programs that the tests start, even if
// a shell or nohup started the tests in the background with these signals ignored: a child
// process inherits ignored signals, but not handlers.
func hearSignals() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// flagOf returns the value of one of the flags of package testing.
func flagOf[T any](name string) (value T) {
	if getter, ok := flag.Lookup(name).Value.(flag.Getter); ok {
		value, _ = getter.Get().(T)
	}
	return value
}

// name returns the name of a flag in an argument of the form -test.NAME=VALUE
// or -test.NAME.
func name(arg string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-test."), "=")
	return name
}

// spreadable reports whether the arguments request all tests or a list of tests, and nothing
// else.
func spreadable(args []string) bool {
	allowed := []string{"count", "failfast", "paniconexit0", "parallel", "short", "shuffle", "skip", "testlogfile", "timeout", "v"}
	return !slices.ContainsFunc(args, func(arg string) bool {
		return !strings.HasPrefix(arg, "-test.") || !slices.Contains(allowed, name(arg)) && !listed.MatchString(arg)
	})
}

// listed matches a -run argument that lists several tests by their whole names.
var listed = regexp.MustCompile(`^-test\.run=(\^\(\w+(?:\|\w+)+\)\$)$`)

// chosen returns the pattern of the tests that the arguments select.
func chosen(args []string) string {
	for _, arg := range args {
		if of := listed.FindStringSubmatch(arg); of != nil {
			return of[1]
		}
	}
	return "."
}

// forwarded returns the arguments to pass to each process: all except those that apply to this
// process alone. The log of files and variables, which the go command's cache relies on, must
// be written by one process.
func forwarded(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return slices.Contains([]string{"testlogfile", "timeout", "run"}, name(arg))
	})
}

// runner runs each test in its own process.
type runner struct {
	args []string
	// mark is true if the output is for test2json, which recognizes lines that begin with a
	// marker.
	mark  bool
	limit time.Duration
	start time.Time

	mu sync.Mutex
	// +checklocks:mu
	out io.Writer
	// +checklocks:mu
	failed bool
}

// list returns the names of the package's tests that match a pattern.
func (r *runner) list(pattern string) ([]string, error) {
	out, _, err := start("-test.list=" + pattern)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "Benchmark") {
			names = append(names, line)
		}
	}
	return names, nil
}

// run runs the tests, atATime of them at a time, and returns the exit code.
func (r *runner) run(names []string, atATime int) int {
	todo := make(chan string)
	var all sync.WaitGroup
	for range atATime {
		all.Go(func() {
			for name := range todo {
				r.one(name)
			}
		})
	}
	for _, name := range names {
		todo <- name
	}
	close(todo)
	all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed {
		r.print("FAIL")
		return 1
	}
	r.print("PASS")
	return 0
}

// one runs one test and prints its output.
func (r *runner) one(test string) {
	args := append(slices.Clone(r.args), "-test.run=^"+test+"$")
	if r.limit > 0 {
		left := max(r.limit-time.Since(r.start), time.Second)
		args = append(args, "-test.timeout="+left.String())
	}
	begun := time.Now()
	out, status, err := start(args...)
	told := withoutEnd(out)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.Write(told) // if this fails, nothing reads the output
	if err == nil {
		return
	}
	r.failed = true
	if !bytes.Contains(out, []byte("--- FAIL: "+test+" ")) {
		fmt.Fprintf(r.out, "the process of %s has ended: %s\n", test, status)
		r.print(fmt.Sprintf("--- FAIL: %s (%.2fs)", test, time.Since(begun).Seconds()))
	}
}

// withoutEnd returns the whole lines of an output, except those that report how the process
// ended: these are printed once for all processes.
func withoutEnd(out []byte) (told []byte) {
	for line := range bytes.Lines(out) {
		if text := string(bytes.Trim(line, "\x16\n")); text != "PASS" && text != "FAIL" {
			told = append(told, line...)
		}
	}
	if len(told) > 0 && told[len(told)-1] != '\n' {
		told = append(told, '\n')
	}
	return told
}

// print prints a line in the format of test2json.
//
// +checklocks:r.mu
func (r *runner) print(line string) {
	if r.mark {
		line = "\x16" + line
	}
	fmt.Fprintln(r.out, line)
}

// start runs the test binary and returns its output, and how it ended. The process is killed
// if this one dies. Its output is a file, so that a descendant that keeps it open does not
// delay the return.
func start(args ...string) (out []byte, status string, err error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", fmt.Errorf("make a file for the output: %w", err)
	}
	file := os.NewFile(uintptr(fd), "output")
	defer func() { err = errors.Join(err, file.Close()) }()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The parent-death signal is sent at the end of the thread that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runErr := cmd.Run()
	if cmd.ProcessState != nil {
		status = cmd.ProcessState.String()
	}
	info, err := file.Stat()
	if err != nil {
		return nil, status, errors.Join(runErr, err)
	}
	out = make([]byte, info.Size())
	_, err = file.ReadAt(out, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return out, status, errors.Join(runErr, err)
}
