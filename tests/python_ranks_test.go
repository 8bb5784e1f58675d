package tests

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// runRanks runs a program as ranks with the Python package, and returns their output. Nothing of
// the job is left afterwards.
func runRanks(t *testing.T, ranks int, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := mnt.Itself("hmcfs", append([]string{"run", "--nranks", strconv.Itoa(ranks), "--timeout", "60s", "--"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonFolder(t), "TMPDIR="+dir, "XDG_RUNTIME_DIR=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return string(out)
}

// rankProgram returns the path of a program for ranks.
func rankProgram(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(pythonFolder(t), "tests", "ranks", name)
}

// TestPythonRanks runs all operations of ranks in Python.
func TestPythonRanks(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	out := runRanks(t, 3, kit.Python(), "-B", rankProgram(t, "everything.py"))
	if strings.Count(out, "done") != 3 {
		t.Errorf("output %q", out)
	}
}

// TestPythonTensors exchanges tensors of PyTorch.
func TestPythonTensors(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy", "torch")
	runRanks(t, 2, kit.Python(), "-B", rankProgram(t, "tensors.py"))
}

// TestPythonRankLost kills a rank, and the server of a rank.
func TestPythonRankLost(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	for _, what := range []string{"rank", "server"} {
		t.Run(what, func(t *testing.T) {
			// A shell hides the end of the rank from the runner, which would end the others.
			out := runRanks(t, 3, "sh", "-c", `"$@"; code=$?; test $code = 137 || exit $code`, "sh", kit.Python(), "-B", rankProgram(t, "lost.py"), what)
			if strings.Count(out, "went on") != 2 {
				t.Errorf("output %q", out)
			}
		})
	}
}

// TestPythonNoRank calls init in a process that is no rank.
func TestPythonNoRank(t *testing.T) {
	kit.Check(t)
	cmd := mnt.Itself("hmcfs", "rank-server")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a Unix socket as its standard input") {
		t.Errorf("%v: %s", err, out)
	}
	out = []byte(runRanks(t, 1, "env", "-u", "HMCFS_RANK", kit.Python(), "-B", "-c", `
import hmcfs
try:
    hmcfs.init()
except hmcfs.Invalid as e:
    print(e)
`))
	if !strings.Contains(string(out), "start it with: hmcfs run --nranks 4") {
		t.Errorf("output %q", out)
	}
}
