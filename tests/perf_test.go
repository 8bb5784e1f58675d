package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// perfPatience is the timeout for a measuring process to do something that happens at once, or
// within perfTimeout.
const perfPatience = 60 * time.Second

// perfLong is the timeout for a process with many measurements, which may take minutes in
// total on a busy machine.
const perfLong = 10 * time.Minute

// perfTimeout is the timeout that hmcfs perf uses for the other side.
const perfTimeout = 3 * time.Second

// command creates a command at one end.
type command func(ctx context.Context, name string, args ...string) *exec.Cmd

// perfEnds holds the places at which the two sides of a measurement run.
type perfEnds struct {
	serve, run command
	secret     string
}

// hereEnds runs both sides on this machine.
func hereEnds(t *testing.T) *perfEnds {
	return &perfEnds{serve: exec.CommandContext, run: exec.CommandContext, secret: newSecret(t)}
}

// cableEnds runs the sides at the two ends of a cable.
func cableEnds(t *testing.T) (*perfEnds, *netns.Cable) {
	t.Helper()
	kit.Require(t, "root", "tool:ip", "tool:nsenter")
	cable, err := netns.New(t.Context())
	must(t, err)
	t.Cleanup(func() {
		if err := cable.Close(); err != nil {
			t.Error(err)
		}
	})
	return &perfEnds{serve: cable.Right.Command, run: cable.Left.Command, secret: newSecret(t)}, cable
}

// newSecret writes a secret file for both sides.
func newSecret(t *testing.T) string {
	t.Helper()
	file := filepath.Join(mnt.TempDir(t), "secret")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "%x\n", kit.Bytes(1, 0, 32)), 0o600))
	return file
}

// perfProcess is one side. It is ended at the end of the test.
type perfProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	// out and said hold standard output and standard error.
	out, said text
}

// text collects the output of a process, and can be read while the process writes.
type text struct {
	mu sync.Mutex
	// +checklocks:mu
	b bytes.Buffer
}

// Write appends.
func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

// String returns all of it.
func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// start starts hmcfs perf at an end.
func (e *perfEnds) start(t *testing.T, at command, verb string, args ...string) *perfProcess {
	t.Helper()
	p := &perfProcess{t: t, done: make(chan struct{})}
	args = append([]string{"perf", verb, "--secret-file", e.secret, "--timeout", perfTimeout.String()}, args...)
	p.cmd = at(context.WithoutCancel(t.Context()), "hmcfs", args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.said
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its state has the outcome
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("hmcfs %s:\n%s%s", strings.Join(args, " "), p.out.String(), p.said.String())
		}
	})
	return p
}

// kill kills the process; when it returns nothing of the process is left.
func (p *perfProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// code waits for the end of the process and returns its exit code, -1 if a signal has ended
// it.
func (p *perfProcess) code() int {
	p.t.Helper()
	return p.codeWithin(perfPatience)
}

// codeWithin does the same with another timeout.
func (p *perfProcess) codeWithin(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatal("it does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// ended reports whether the process has ended.
func (p *perfProcess) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// says waits until the process has written a text to standard error.
func (p *perfProcess) says(want string) {
	p.t.Helper()
	kit.Eventually(p.t, perfPatience, func() error {
		if got := p.said.String(); !strings.Contains(got, want) {
			return fmt.Errorf("it says %q, and not %q", got, want)
		}
		return nil
	})
}

// listen starts a server and returns the addresses that it prints.
func (e *perfEnds) listen(t *testing.T, at []string, args ...string) (*perfProcess, []string) {
	t.Helper()
	for _, a := range at {
		args = append(args, "--listen", a)
	}
	p := e.start(t, e.serve, "serve", args...)
	var told []string
	kit.Eventually(t, perfPatience, func() bool {
		told = strings.Fields(p.out.String())
		return len(told) == len(at) && strings.HasSuffix(p.out.String(), "\n") || p.ended()
	})
	if len(told) != len(at) {
		t.Fatalf("the server listens at %q: %s", told, p.said.String())
	}
	for i := range told {
		told[i] = strings.TrimPrefix(told[i], "tcp:")
	}
	return p, told
}

// measures runs a measurement to its end, which must succeed, and returns its report.
func (e *perfEnds) measures(t *testing.T, args ...string) perf.Report {
	t.Helper()
	p := e.start(t, e.run, "run", append([]string{"--json"}, args...)...)
	if code := p.codeWithin(perfLong); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.said.String())
	}
	var r perf.Report
	must(t, json.Unmarshal([]byte(p.out.String()), &r))
	for _, row := range r.Rows {
		if row.Mode == "bandwidth" && !row.Verified {
			t.Errorf("not verified: %+v", row)
		}
	}
	return r
}

// little returns flags for a small amount of every measurement.
func little() []string {
	return []string{"--sizes", "8,100000,3MiB", "--iterations", "3", "--rounds", "5"}
}

// endless returns flags to move bytes in one direction until something ends it.
func endless(operation string) []string {
	rounds := "1"
	if operation == perf.OpTag {
		rounds = "100000000"
	}
	return []string{"--operation", operation, "--sizes", "16MiB", "--iterations", "100000000", "--rounds", rounds}
}
