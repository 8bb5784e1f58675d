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

// memOwner is another process that has a memfd as its descriptor 3, which the test has mapped
// too.
type memOwner struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	file  *os.File
	bytes []byte
}

// newMemOwner starts a process of a user, with a memfd of n bytes of content.
func newMemOwner(t *testing.T, uid uint32, seed uint64, n int) *memOwner {
	t.Helper()
	o := &memOwner{t: t, file: memfd(t, n)}
	view, err := unix.Mmap(int(o.file.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	o.bytes = view
	kit.FillAt(o.bytes, seed, 0)
	o.cmd = exec.Command("cat") // runs until its input ends
	o.cmd.ExtraFiles = []*os.File{o.file}
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
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

// memfd creates shared memory of this process.
func memfd(t *testing.T, n int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("tensor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	f := os.NewFile(uintptr(fd), "memfd:tensor")
	must(t, f.Truncate(int64(n)))
	return f
}

func (o *memOwner) pid() int { return o.cmd.Process.Pid }

// kill kills the process and waits for its end.
func (o *memOwner) kill() {
	if o.cmd.ProcessState != nil {
		return
	}
	must(o.t, o.cmd.Process.Kill())
	_ = o.cmd.Wait() // it was killed
	_ = o.stdin.Close()
}

// piece describes n bytes of the memory from off.
func (o *memOwner) piece(off, n int) string {
	return fmt.Sprintf(`{"kind":"memfd","fd":3,"offset":%d,"size":%d}`, off, n)
}

// value returns the value of user.hmc.bind that binds pieces.
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

// bindFile creates a file and binds memory to it.
func bindFile(t *testing.T, path, value string) {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o666))
	must(t, unix.Setxattr(path, bindXattr, []byte(value), 0))
}

// newBound creates a file that is n bytes of an owner's memory, with content 1.
func newBound(t *testing.T, p place, n int) (o *memOwner, path string) {
	t.Helper()
	o, path = newMemOwner(t, 0, 1, n), p.path("f")
	bindFile(t, path, o.value(familyOf(p.name), o.piece(0, n)))
	return o, path
}

// path returns the path by which the test itself opens the memory.
func (o *memOwner) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), o.file.Fd()) }

func pathPiece(path string, n int) string {
	return fmt.Sprintf(`{"kind":"memfd","path":%q,"size":%d}`, path, n)
}

func fdPiece(f *os.File) string {
	return fmt.Sprintf(`{"kind":"memfd","fd":%d,"size":1}`, f.Fd())
}

func mustXattr(t *testing.T, path, name string) string {
	t.Helper()
	value, err := getxattr(path, name)
	must(t, err)
	return value
}

// shmDir returns a directory of shared memory that is removed at the end of the test.
func shmDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "hmcfs-test-") //nolint:usetesting // it must be on a tmpfs
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// openForBinding opens files that look like memory but are not, or not the caller's own.
func openForBinding(t *testing.T) map[string]*os.File {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Close(pair[1]))
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	must(t, err)
	shm := shmDir(t) + "/read-only"
	must(t, os.WriteFile(shm, []byte("content"), 0o666))
	read, err := os.Open(shm)
	must(t, err)
	files := map[string]*os.File{
		"socket": os.NewFile(uintptr(pair[0]), "socket"), "event": os.NewFile(uintptr(event), "event"), "read-only": read,
	}
	t.Cleanup(func() {
		for _, f := range files {
			must(t, f.Close())
		}
	})
	return files
}
