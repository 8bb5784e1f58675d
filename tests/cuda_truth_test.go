package tests

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// truth runs the independent program of tests/gpu, which uses the driver and does not know
// hmcfs.
type truth struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// newTruth starts it with the library of useStandInCards; the first test that needs it
// compiles it. It ends with the test.
func newTruth(t *testing.T, args ...string) *truth {
	t.Helper()
	kit.Require(t, "tool:cc")
	program := filepath.Join(mnt.Base(), "truth")
	if _, err := os.Stat(program); err != nil {
		if out, err := exec.Command("cc", "-std=gnu11", "-O2", "-o", program, "gpu/native/truth.c", "-ldl").CombinedOutput(); err != nil {
			t.Fatalf("compile truth: %v\n%s", err, out)
		}
	}
	p := &truth{t: t, cmd: exec.Command(program, args...)}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.in, p.out = in, bufio.NewReader(out)
	must(t, p.cmd.Start())
	t.Cleanup(p.kill)
	return p
}

// own starts a program that has card memory with the content of a seed, and also returns the
// value of user.hmc.bind.
func own(t *testing.T, kind string, seed uint64, card int) (p *truth, value string) {
	t.Helper()
	p = newTruth(t, "own", kind, fmt.Sprint(cardFile), fmt.Sprint(seed), "2", "8192", fmt.Sprint(card))
	return p, p.hear()
}

// hear returns the next line of its output.
func (p *truth) hear() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	must(p.t, err)
	return strings.TrimSpace(line)
}

// agrees sends a command, and expects "ok".
func (p *truth) agrees(command string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, command+"\n")
	must(p.t, err)
	if answer := p.hear(); answer != "ok" {
		p.t.Errorf("truth: %s: %s", command, answer)
	}
}

// kill kills it, as a crash would. It may have ended already.
func (p *truth) kill() {
	_ = p.cmd.Process.Signal(unix.SIGKILL)
	_ = p.cmd.Wait() // its status is the signal
}
