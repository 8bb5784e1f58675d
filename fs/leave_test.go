package fs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestLeave has a server leave whose threads wait for requests: it answers none of those that come
// after that, and the process that follows has them all.
func TestLeave(t *testing.T) {
	kit.Check(t)
	with, err := handshake(fuse.NewDefaultRawFileSystem(), &fuse.InitIn{
		InHeader: fuse.InHeader{Length: initLength, Opcode: opInit, Unique: 1}, Major: 7, Minor: 31,
	}, &fuse.MountOptions{MaxWrite: testRequest})
	must(t, err)
	// The test has the kernel's end of the device, and a descriptor of the other one, as a keeper has.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	kernel, kept := pair[0], pair[1]
	must(t, unix.Dup3(kept, with.fd, unix.O_CLOEXEC))
	server := &Server{fuse: with.server, device: with.fd}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.fuse.Serve()
	}()
	for unique := uint64(10); unique < 20; unique++ {
		statfs(t, kernel, unique)
		if got := answered(t, kernel); got != unique {
			t.Fatalf("%d is answered, want %d", got, unique)
		}
	}
	kit.Eventually(t, time.Minute, func() bool { return waits(with.fd) })

	must(t, server.Leave())
	for unique := uint64(20); unique < 30; unique++ {
		statfs(t, kernel, unique)
	}
	for unique := uint64(20); unique < 30; unique++ {
		if got := answered(t, kept); got != unique {
			t.Fatalf("the process that follows gets %d, want %d", got, unique)
		}
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(kernel), Events: unix.POLLIN}}, 0); n != 0 || err != nil {
		t.Errorf("something was answered: %d, %v", n, err)
	}
	// The end of what it reads ends the server.
	must(t, errors.Join(unix.Close(kernel), unix.Close(kept), server.left.Close()))
	<-ended
}

// waits reports whether a thread of this process waits in a read of a descriptor.
func waits(fd int) bool {
	tasks, _ := filepath.Glob("/proc/self/task/*/syscall")
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err == nil && strings.HasPrefix(string(text), fmt.Sprintf("%d %#x ", unix.SYS_READ, fd)) {
			return true
		}
	}
	return false
}

// statfs sends a request that every filesystem answers.
func statfs(t *testing.T, to int, unique uint64) {
	t.Helper()
	const statfs = 17
	m := make([]byte, 40)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint32(m[4:], statfs)
	binary.NativeEndian.PutUint64(m[8:], unique)
	binary.NativeEndian.PutUint64(m[16:], 1)
	_, err := unix.Write(to, m)
	must(t, err)
}

// answered returns the number of the next request or answer that comes.
func answered(t *testing.T, from int) uint64 {
	t.Helper()
	must(t, unix.SetsockoptTimeval(from, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}))
	m := make([]byte, 4096)
	n, err := unix.Read(from, m)
	if err != nil || n < 16 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return binary.NativeEndian.Uint64(m[8:])
}
