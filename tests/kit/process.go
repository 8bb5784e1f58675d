package kit

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Process starts a process that has files as its descriptors 3, 4, … and does
// nothing. It ends when kill is called, from any goroutine, or with the test.
// When kill returns, nothing of it is left.
func Process(t testing.TB, files ...*os.File) (pid int, kill func()) {
	t.Helper()
	cmd := exec.Command("cat") // until its input ends
	cmd.ExtraFiles = files
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = stdin.Close()
	})
	t.Cleanup(kill)
	return cmd.Process.Pid, kill
}

// Memfd makes shared memory with the content of a seed. It is closed with the test.
func Memfd(t testing.TB, seed uint64, size int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(Bytes(seed, 0, size)); err != nil {
		t.Fatal(err)
	}
	return f
}
