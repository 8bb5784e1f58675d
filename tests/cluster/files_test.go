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

// write creates a file in which the content of every byte depends on its offset.
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

// check is verify for callers that continue after an error.
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

// prefix returns how many bytes of a file exist, all of which must be right.
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

// way returns the path that the last transfer into a file took.
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

// run runs a program and returns its output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try is run with an error, which includes the output.
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

// soon fails the test unless fn returns within a time that is ample for any machine.
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

// TestAccessTimeStays sets the access time of another node's file while the file is read
// ahead: requests made earlier no longer change it.
func TestAccessTimeStays(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2})
	for _, device := range []string{"host", "sim0"} {
		at := nodes[0].at("b", device, "f")
		write(t, at, 1, 16<<20)
		p := make([]byte, 128<<10)
		for round := range kit.Rounds(20, 30, 300) {
			f, err := os.Open(at)
			must(t, err)
			for range 4 {
				_, err = f.Read(p)
				must(t, err)
			}
			set := time.Unix(1_000_000_000+int64(round), 0)
			must(t, os.Chtimes(at, set, time.Now()))
			must(t, f.Close())
			var st unix.Stat_t
			must(t, unix.Stat(at, &st))
			if got := time.Unix(st.Atim.Unix()); !got.Equal(set) {
				t.Fatalf("%s: round %d: accessed %v, set %v", device, round, got, set)
			}
		}
	}
}
