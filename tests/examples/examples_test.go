package examples

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
)

func TestMain(m *testing.M) { spread.Main(m, build) }

// build builds hmcfs and all examples into a directory.
func build(dir string) error {
	out, err := exec.Command("go", "build", "-o", dir, "../../cmd/hmcfs", "./treduce", "./ring", "./pipeline", "./pingpong", "./gradients").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the examples: %w: %s", err, out)
	}
	return nil
}

// programs returns a directory, only for this test, with hmcfs and all examples.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "x") //nolint:usetesting // a test's own directory is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	entries, err := os.ReadDir(spread.Prepared())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Link(filepath.Join(spread.Prepared(), e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// job runs hmcfs run, and returns its sorted lines and its exit code.
func job(t *testing.T, dir string, args ...string) (lines []string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "hmcfs"), append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), "HMCFS="+filepath.Join(dir, "hmcfs"), "TMPDIR="+dir, "XDG_RUNTIME_DIR=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "hmcfs-job-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	lines = strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	slices.Sort(lines)
	return lines, cmd.ProcessState.ExitCode()
}

func TestExamples(t *testing.T) {
	kit.Check(t)
	dir := programs(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	passed := "=== VERIFICATION PASSED === "
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"treduce 4": {
			[]string{"--config", "treduce/4.yaml", "--", at("treduce")},
			[]string{"=== ALL 4 RANKS COMPLETED ===", passed + "(256 elements)", "[0] 4 ranks: 600 … 1620"},
		},
		"treduce 8": {
			[]string{"--config", "treduce/8.yaml", "--", at("treduce")},
			[]string{"=== ALL 8 RANKS COMPLETED ===", passed + "(256 elements)", "[0] 8 ranks: 2800 … 4840"},
		},
		"seed ring": {
			[]string{"--config", "ring/seed.yaml", "--", at("ring"), "seed"},
			[]string{
				"=== ALL 4 RANKS COMPLETED ===", passed + "(40 elements)", "[0] 0 2 4 6 8 10 12 14 16 18", "[1] 0 4 8 12 16 20 24 28 32 36",
				"[2] 0 6 12 18 24 30 36 42 48 54", "[3] 0 4 8 12 16 20 24 28 32 36",
			},
		},
		"seed ring of 2": {[]string{"-n", "2", at("ring"), "seed"}, []string{"[0] 0 2 4 6 8 10 12 14 16 18", "[1] 0 2 4 6 8 10 12 14 16 18"}},
		"seed ring of 3": {[]string{"-n", "3", at("ring"), "seed"}, []string{
			"[0] 0 2 4 6 8 10 12 14 16 18", "[1] 0 3 6 9 12 15 18 21 24 27", "[2] 0 3 6 9 12 15 18 21 24 27",
		}},
		"corrected ring": {
			[]string{"--config", "ring/corrected.yaml", "--", at("ring"), "corrected"},
			[]string{
				"=== ALL 4 RANKS COMPLETED ===", passed + "(40 elements)", "[0] 0 1 2 3 4 5 6 7 8 9", "[1] 0 1 2 3 4 5 6 7 8 9",
				"[2] 0 1 2 3 4 5 6 7 8 9", "[3] 0 1 2 3 4 5 6 7 8 9",
			},
		},
		"pipeline": {
			[]string{"--config", "pipeline/job.yaml", "--", at("pipeline")},
			[]string{"=== ALL 3 RANKS COMPLETED ===", passed + "(16384 elements)", "[2] 16 batches, the last one ends with 32765"},
		},
		"ping-pong":        {[]string{"-n", "2", at("pingpong")}, pong()},
		"ping-pong by tcp": {[]string{"-n", "2", "--transport", "tcp", at("pingpong")}, pong()},
		"ping-pong by shm": {[]string{"-n", "2", "--transport", "shm", at("pingpong")}, pong()},
		"gradients": {
			[]string{"--config", "gradients/job.yaml", "--", at("gradients")},
			[]string{
				"=== ALL 4 RANKS COMPLETED ===", passed + "(96000 elements)",
				"[0] 24 layers of 1000 weights: -0.75 -0.25 0.25 …", "[1] 24 layers of 1000 weights: -0.75 -0.25 0.25 …",
				"[2] 24 layers of 1000 weights: -0.75 -0.25 0.25 …", "[3] 24 layers of 1000 weights: -0.75 -0.25 0.25 …",
			},
		},
		"a reduction in shell": {[]string{"-n", "4", "--", "shell/reduce.sh"}, []string{"[0] the sum is 10"}},
		"a ring in shell": {[]string{"-n", "3", "--", "shell/ring.sh"}, []string{
			"[0] a message from rank 0", "[1] a message from rank 0", "[2] a message from rank 0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, code := job(t, dir, c.args...)
			slices.Sort(c.want)
			if code != 0 || strings.TrimSpace(strings.Join(got, "\n")) != strings.TrimSpace(strings.Join(c.want, "\n")) {
				t.Errorf("exit code %d\n%s\nwant\n%s", code, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func pong() []string {
	return []string{"[0] round 0: 16384 values are right", "[0] round 1: 16384 values are right", "[0] round 2: 16384 values are right"}
}

// TestWrongAnswerIsFound checks that the seed's ring does not meet its description: that all
// ranks end with the same data.
func TestWrongAnswerIsFound(t *testing.T) {
	kit.Check(t)
	dir := programs(t)
	lines, code := job(t, dir, "--config", "ring/corrected.yaml", "--", filepath.Join(dir, "ring"), "seed")
	all := strings.Join(lines, "\n")
	if code != 6 || !strings.Contains(all, "=== VERIFICATION FAILED === (36 of 40 elements differ)") ||
		!strings.Contains(all, "rank 2 data[1]: got 6, want 1") || !strings.Contains(all, "hmcfs: 36 of 40 elements are not as expected") {
		t.Errorf("exit code %d\n%s", code, all)
	}
}

// TestWithoutTheRunner starts ranks as docs/run.md describes for other machines: with only the
// variables that it names.
func TestWithoutTheRunner(t *testing.T) {
	kit.Check(t)
	dir := programs(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	var book []string
	for range 2 {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		book = append(book, l.Addr().String())
		if err = l.Close(); err != nil { // the rank uses its port
			t.Fatal(err)
		}
	}
	var outs [2]strings.Builder
	var all []*exec.Cmd
	for r := range outs {
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "pingpong"))
		cmd.Env = []string{
			fmt.Sprintf("HMCFS_RANK=%d", r), "HMCFS_WORLD=2", "HMCFS_JOB=j1", "HMCFS_JOB_DIR=" + dir,
			"HMCFS_SECRET_FILE=" + secret, "HMCFS_BOOK=" + strings.Join(book, ","),
		}
		cmd.Stdout, cmd.Stderr = &outs[r], &outs[r]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for r, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v: %s", r, err, outs[r].String())
		}
	}
	if got := outs[0].String(); strings.Count(got, "16384 values are right") != 3 {
		t.Errorf("rank 0 says %q", got)
	}
}
