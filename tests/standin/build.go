package standin

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Library compiles <source>.c of this package's folder into a shared library with the given
// file name (and soname), in its own folder, and returns that folder: the value for
// LD_LIBRARY_PATH.
func Library(t testing.TB, source, soname string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	library, err := compiled(arguments(t, source, "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,"+soname))
	if err != nil {
		t.Fatalf("compile %s.c: %v", source, err)
	}
	if err := os.WriteFile(filepath.Join(dir, soname), library, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Program compiles <source>.c of this package's folder and returns the program's path. It is
// linked only with libdl: a program opens the vendor's library itself.
func Program(t testing.TB, source string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), source)
	if err := cc(arguments(t, source), path); err != nil {
		t.Fatalf("compile %s.c: %v", source, err)
	}
	return path
}

// Source returns the path of <source>.c of this package's folder, for a test that compiles it
// with the vendor's own header.
func Source(t testing.TB, source string) (path string) {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where this package lies is not known")
	}
	return filepath.Join(filepath.Dir(here), source+".c")
}

// built caches the libraries that this process has compiled, by cc's arguments: cc takes
// longer than most tests. Each test gets a copy, since a library finds its settings in its
// folder. The values are of type func() ([]byte, error).
//
//nolint:gochecknoglobals // the same source gives the same bytes to all tests
var built sync.Map

// compiled returns the output file of cc for the arguments.
func compiled(args []string) ([]byte, error) {
	once, _ := built.LoadOrStore(strings.Join(args, "\x00"), sync.OnceValues(func() (_ []byte, err error) {
		dir, err := os.MkdirTemp("", "standin-")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		out := filepath.Join(dir, "out")
		if err := cc(args, out); err != nil {
			return nil, err
		}
		return os.ReadFile(out)
	}))
	get, ok := once.(func() ([]byte, error))
	if !ok {
		return nil, fmt.Errorf("%T among what is compiled", once)
	}
	return get()
}

// cc runs the compiler.
func cc(args []string, out string) error {
	cmd := exec.Command("cc", append([]string{"-o", out}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// arguments returns cc's arguments for <source>.c.
func arguments(t testing.TB, source string, flags ...string) []string {
	t.Helper()
	args := append([]string{"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"}, flags...)
	return append(args, Source(t, source), "-ldl")
}
