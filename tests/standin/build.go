package standin

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Library compiles <source>.c of this package's folder into a shared library
// with the given file name (and soname), in a folder of its own, and returns
// that folder: the value for LD_LIBRARY_PATH.
func Library(t testing.TB, source, soname string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	compile(t, source, filepath.Join(dir, soname),
		"-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,"+soname)
	return dir
}

// Program compiles <source>.c of this package's folder and returns the
// program's path. It is linked with libdl only: a program opens the vendor's
// library by itself.
func Program(t testing.TB, source string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), source)
	compile(t, source, path)
	return path
}

// Source is the path of <source>.c of this package's folder, for a test that
// compiles it against the vendor's own header.
func Source(t testing.TB, source string) (path string) {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where this package lies is not known")
	}
	return filepath.Join(filepath.Dir(here), source+".c")
}

func compile(t testing.TB, source, out string, flags ...string) {
	t.Helper()
	args := append([]string{"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"}, flags...)
	args = append(args, "-o", out, Source(t, source), "-ldl")
	cmd := exec.CommandContext(t.Context(), "cc", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("compile %s.c: %v", source, err)
	}
}
