package tests

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// memOwner is another process that has a memfd as its descriptor 3, which the
// test has mapped too.
type memOwner struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	file  *os.File
	bytes []byte
}

// newMemOwner starts a process of a user's with a memfd of n bytes of content.
func newMemOwner(t *testing.T, uid uint32, seed uint64, n int) *memOwner {
	t.Helper()
	o := &memOwner{t: t, file: memfd(t, n)}
	view, err := unix.Mmap(int(o.file.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	o.bytes = view
	kit.FillAt(o.bytes, seed, 0)
	o.cmd = exec.Command("cat") // until its input ends
	o.cmd.ExtraFiles = []*os.File{o.file}
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	o.cmd.Dir = "/"
	o.stdin, err = o.cmd.StdinPipe()
	must(t, err)
	must(t, o.cmd.Start())
	t.Cleanup(func() {
		o.kill()
		must(t, unix.Munmap(o.bytes))
		must(t, o.file.Close())
	})
	return o
}

// memfd makes shared memory of this process.
func memfd(t *testing.T, n int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("tensor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	f := os.NewFile(uintptr(fd), "memfd:tensor")
	must(t, f.Truncate(int64(n)))
	return f
}

func (o *memOwner) pid() int { return o.cmd.Process.Pid }

// kill ends the process and waits for its end.
func (o *memOwner) kill() {
	if o.cmd.ProcessState != nil {
		return
	}
	must(o.t, o.cmd.Process.Kill())
	_ = o.cmd.Wait() // it was killed
	_ = o.stdin.Close()
}

// piece is n bytes of the memory from off.
func (o *memOwner) piece(off, n int) string {
	return fmt.Sprintf(`{"kind":"memfd","fd":3,"offset":%d,"size":%d}`, off, n)
}

// value is what is written to user.hmc.bind to bind pieces.
func (o *memOwner) value(family string, pieces ...string) string {
	return bindValue(family, o.pid(), pieces...)
}

func bindValue(family string, pid int, pieces ...string) string {
	text := ""
	for i, p := range pieces {
		if i > 0 {
			text += ","
		}
		text += p
	}
	owner := ""
	if pid > 0 {
		owner = fmt.Sprintf(`"pid":%d,`, pid)
	}
	return fmt.Sprintf(`{"family":%q,%s"pieces":[%s]}`, family, owner, text)
}

const bindXattr, handleXattr = "user.hmc.bind", "user.hmc.handle"

// bindFile makes a file and binds memory to it.
func bindFile(t *testing.T, path, value string) {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o666))
	must(t, unix.Setxattr(path, bindXattr, []byte(value), 0))
}
