package examples

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// machines are two machines connected by a cable, and an agent by which a runner on the left
// machine reaches both, as by ssh.
type machines struct {
	*netns.Cable

	dir   string
	agent string
}

func newMachines(t *testing.T) *machines {
	t.Helper()
	kit.Require(t, "root", "tool:ip", "tool:nsenter")
	kit.Check(t)
	m := &machines{dir: programs(t)}
	var err error
	if m.Cable, err = netns.New(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := m.Close(); cerr != nil {
			t.Error(cerr)
		}
	})
	script := "#!/bin/sh\nhost=$1\nshift\ncase $host in\n"
	for _, s := range []*netns.Space{m.Left, m.Right} {
		// As with ssh, the agent's process remains.
		into := s.Command(t.Context(), "env", "TMPDIR="+m.dir, "XDG_RUNTIME_DIR=").Args
		script += s.Name + ") " + strings.Join(into, " ") + ` "$@" ;;` + "\n"
	}
	m.agent = filepath.Join(m.dir, "agent")
	if err = os.WriteFile(m.agent, []byte(script+"*) echo no route to $host >&2; exit 255 ;;\nesac\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs a job from the left machine, and returns its sorted lines and its exit code.
func (m *machines) run(t *testing.T, args ...string) (lines []string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	hmcfs := filepath.Join(m.dir, "hmcfs")
	all := slices.Concat([]string{"--chdir=" + here, "TMPDIR=" + m.dir, "XDG_RUNTIME_DIR=", hmcfs, "run", "--agent", m.agent, "--remote-hmcfs", hmcfs}, args)
	cmd := m.Left.Command(ctx, "env", all...)
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	m.empty(t)
	lines = strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	return lines, cmd.ProcessState.ExitCode()
}

// empty checks that no directory of a job is left on either machine.
func (m *machines) empty(t *testing.T) {
	t.Helper()
	kit.Eventually(t, time.Minute, func() bool {
		left, err := filepath.Glob(filepath.Join(m.dir, "hmcfs-job-*"))
		return err == nil && len(left) == 0
	})
}

// TestOnTwoMachines runs examples on two machines, each with its own network.
func TestOnTwoMachines(t *testing.T) {
	m := newMachines(t)
	left, right := m.Left.Name, m.Right.Name
	passed := "=== VERIFICATION PASSED === "
	for name, c := range map[string]struct {
		hosts string
		args  []string
		want  []string
	}{
		"treduce": {
			"localhost:2," + right + ":2",
			[]string{"--config", "treduce/4.yaml", filepath.Join(m.dir, "treduce")},
			[]string{"=== ALL 4 RANKS COMPLETED ===", passed + "(256 elements)", "[0] 4 ranks: 600 … 1620"},
		},
		"treduce by tcp": {
			left + ":3," + right + ":1",
			[]string{"--config", "treduce/4.yaml", "--transport", "tcp", filepath.Join(m.dir, "treduce")},
			[]string{"=== ALL 4 RANKS COMPLETED ===", passed + "(256 elements)", "[0] 4 ranks: 600 … 1620"},
		},
		"ping-pong": {left + "," + right, []string{filepath.Join(m.dir, "pingpong")}, pong()},
		"gradients": {
			right + ":2," + left + ":2",
			[]string{"--config", "gradients/job.yaml", filepath.Join(m.dir, "gradients")},
			[]string{
				"=== ALL 4 RANKS COMPLETED ===", passed + "(96000 elements)",
				"[0] 24 layers of 1000 weights: -0.75 -0.25 0.25 …", "[1] 24 layers of 1000 weights: -0.75 -0.25 0.25 …",
				"[2] 24 layers of 1000 weights: -0.75 -0.25 0.25 …", "[3] 24 layers of 1000 weights: -0.75 -0.25 0.25 …",
			},
		},
		// This algorithm is chosen only where the ranks know which of them share memory.
		"collectives": {
			left + ":2," + right + ":2",
			[]string{filepath.Join(m.dir, "hmcfs"), "perf", "collective", "--operation", "allreduce", "--algorithm", "hierarchical", "--sizes", "64KiB", "--rounds", "2", "--report", filepath.Join(m.dir, "report")},
			[]string{""},
		},
		"a machine that is not there": {
			left + ",nowhere",
			[]string{"touch", filepath.Join(m.dir, "started")},
			[]string{"[nowhere] no route to nowhere", "hmcfs: host nowhere can't be reached: " + m.agent + " ended with exit code 255: no route to nowhere"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, code := m.run(t, append([]string{"--hosts", c.hosts}, c.args...)...)
			slices.Sort(c.want)
			wrong := code != 0
			if strings.Contains(name, "not there") {
				wrong = code != 2
			}
			if wrong || !slices.Equal(got, c.want) {
				t.Errorf("exit code %d\n%s\nwant\n%s", code, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
	if _, err := os.Stat(filepath.Join(m.dir, "started")); err == nil {
		t.Error("a rank has begun")
	}
	report, err := os.ReadFile(filepath.Join(m.dir, "report"))
	if err != nil || !strings.Contains(string(report), `"hierarchical"`) {
		t.Errorf("ranks don't see what shares memory: %s, %v", report, err)
	}
}

// TestBarrierOnTwoMachines lets ranks of two machines wait for each other.
func TestBarrierOnTwoMachines(t *testing.T) {
	m := newMachines(t)
	script := fmt.Sprintf(`for i in 1 2 3; do printf %%s $i >> %s/log; %s/hmcfs barrier || exit 9; done`, m.dir, m.dir)
	lines, code := m.run(t, "--hosts", "localhost:2,"+m.Right.Name+":2", "sh", "-c", script)
	log, err := os.ReadFile(filepath.Join(m.dir, "log"))
	if code != 0 || err != nil || string(log) != "111122223333" {
		t.Errorf("exit code %d, %q, %v, %q", code, log, err, lines)
	}
}
