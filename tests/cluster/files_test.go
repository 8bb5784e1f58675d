package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// write makes a file with content that tells every byte's place.
func write(t testing.TB, path string, seed uint64, size int) {
	t.Helper()
	must(t, os.WriteFile(path, kit.Bytes(seed, 0, size), 0o644))
}

// verify reads a file and compares each byte.
func verify(t testing.TB, path string, seed uint64, size int) {
	t.Helper()
	if err := check(path, seed, size); err != nil {
		t.Error(err)
	}
}

// check is verify for those who go on.
func check(path string, seed uint64, size int) error {
	got, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(got) != size {
		return fmt.Errorf("%s has %d bytes, want %d", path, len(got), size)
	}
	if at := kit.DiffAt(got, seed, 0); at >= 0 {
		return fmt.Errorf("%s: byte %d of %d is wrong", path, at, size)
	}
	return nil
}

// prefix says how many bytes of a file are there, all of which must be right.
func prefix(path string, seed uint64) (int, error) {
	got, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if at := kit.DiffAt(got, seed, 0); at >= 0 {
		return 0, fmt.Errorf("%s: byte %d of %d is wrong", path, at, len(got))
	}
	return len(got), nil
}

// way is which way the last transfer into a file took.
func way(t testing.TB, path string) string {
	t.Helper()
	p := make([]byte, 256)
	n, err := unix.Getxattr(path, "user.hmc.path", p)
	if err != nil {
		t.Errorf("%s: user.hmc.path: %v", path, err)
		return ""
	}
	return string(p[:n])
}

// run runs a program and returns what it writes.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try is run with an error that has what was written.
func try(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), err
}

// soon fails the test unless fn returns within a time that no machine needs.
func soon(t testing.TB, what string, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		t.Fatalf("%s: not within %v", what, patience)
		return nil
	}
}
