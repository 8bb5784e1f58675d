package standin

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/tests/spread"
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
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// With -trimpath the compiler does not tell; a test starts in the folder of its package.
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "tests", "standin", source+".c")
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test does not run in a checkout")
		}
		dir = filepath.Dir(dir)
	}
}

// built caches the libraries that this process has compiled, by cc's arguments: cc takes
// longer than most tests. Each test gets a copy, since a library finds its settings in its
// folder. The values are of type func() ([]byte, error).
//
//nolint:gochecknoglobals // the same source gives the same bytes to all tests
var built sync.Map

// compiled returns the output file of cc for the arguments.
func compiled(args []string) ([]byte, error) {
	key := strings.Join(args, "\x00")
	once, _ := built.LoadOrStore(key, sync.OnceValues(func() ([]byte, error) {
		dir := spread.Prepared()
		if dir == "" {
			return compile(args, "", "")
		}
		kept := filepath.Join(dir, fmt.Sprintf("standin-%x", sha256.Sum256([]byte(key))))
		library, err := os.ReadFile(kept)
		if errors.Is(err, fs.ErrNotExist) {
			return compile(args, dir, kept)
		}
		return library, err
	}))
	get, ok := once.(func() ([]byte, error))
	if !ok {
		return nil, fmt.Errorf("%T among what is compiled", once)
	}
	return get()
}

// compile runs cc in a folder below dir, and keeps its output for other processes if kept is a
// path.
func compile(args []string, dir, kept string) (library []byte, err error) {
	if dir, err = os.MkdirTemp(dir, "standin-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	out := filepath.Join(dir, "out")
	if err = cc(args, out); err == nil {
		library, err = os.ReadFile(out)
	}
	if err == nil && kept != "" {
		err = os.Rename(out, kept)
	}
	return library, err
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
