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
	"github.com/hmcfs/hmcfs/tests/standin"
)

// cards is a machine with two cards of the stand-in for NVIDIA's driver, and a
// mount of both.
type cards struct {
	*mnt.M

	t   *testing.T
	lib string // directory of the library
}

// newCards makes the machine, with settings of the stand-in such as
// "memory=67108864", and the mount without starting it.
func newCards(t *testing.T, settings ...string) *cards {
	t.Helper()
	kit.Require(t, "fuse", "root", "tool:cc")
	c := &cards{t: t, lib: standin.Library(t, "cuda", "libcuda.so.1")}
	c.set(settings...)
	return c.prepare()
}

// prepare makes the mount without starting it.
func (c *cards) prepare() *cards {
	c.t.Helper()
	c.M = mnt.Prepare(c.t, mnt.Options{
		Devices: []string{"host,size=64MiB", "cuda:0", "cuda:1"},
		Env:     []string{c.env()},
	})
	return c
}

// mountCards makes the machine and mounts.
func mountCards(t *testing.T, settings ...string) *cards {
	t.Helper()
	c := newCards(t, settings...)
	c.Start()
	return c
}

// again mounts the same cards a second time, in another process.
func (c *cards) again() *cards {
	c.t.Helper()
	other := (&cards{t: c.t, lib: c.lib}).prepare()
	other.Start()
	return other
}

// env is how a process finds the library.
func (c *cards) env() string { return "LD_LIBRARY_PATH=" + c.lib }

// set replaces the settings that the stand-in reads while it runs.
func (c *cards) set(settings ...string) {
	c.t.Helper()
	file := filepath.Join(c.lib, "control")
	must(c.t, os.WriteFile(file+".new", []byte(strings.Join(settings, "\n")+"\n"), 0o600))
	must(c.t, os.Rename(file+".new", file))
}

// hmcfs is a command of the program on that machine.
func (c *cards) hmcfs(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{"hmcfs"}, args...)
	cmd.Env = append(os.Environ(), c.env())
	return cmd
}

// truth is the independent program of tests/gpu, which knows the driver and
// nothing of hmcfs.
type truth struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// newTruth compiles and starts it; it ends with the test.
func newTruth(t *testing.T, c *cards, args ...string) *truth {
	t.Helper()
	program := filepath.Join(t.TempDir(), "truth")
	if out, err := exec.Command("cc", "-std=gnu11", "-O2", "-o", program, "gpu/native/truth.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("compile truth: %v\n%s", err, out)
	}
	p := &truth{t: t, cmd: exec.Command(program, args...)}
	p.cmd.Env = append(os.Environ(), c.env())
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

// own starts one that has memory of a card with the content of a seed, and
// returns the value of user.hmc.bind too.
func own(t *testing.T, c *cards, kind string, n int, seed uint64, card int) (p *truth, value string) {
	t.Helper()
	p = newTruth(t, c, "own", kind, fmt.Sprint(n), fmt.Sprint(seed), "2", "8192", fmt.Sprint(card))
	return p, p.hear()
}

// hear returns the next line that it prints.
func (p *truth) hear() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	must(p.t, err)
	return strings.TrimSpace(line)
}

// agrees asks, and wants "ok".
func (p *truth) agrees(command string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, command+"\n")
	must(p.t, err)
	if answer := p.hear(); answer != "ok" {
		p.t.Errorf("truth: %s: %s", command, answer)
	}
}

// kill ends it as a crash would. It may have ended.
func (p *truth) kill() {
	_ = p.cmd.Process.Signal(unix.SIGKILL)
	_ = p.cmd.Wait() // its status is the signal
}
