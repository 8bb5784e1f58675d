package descriptor

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Use runs fn on a descriptor that stays open meanwhile.
func Use(f syscall.Conn, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// Duplicate returns another descriptor of an open file.
func Duplicate(f syscall.Conn) (fd int, err error) {
	err = Use(f, func(own int) (err error) {
		fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// UsePath runs fn on a path by which an open file can be opened again.
func UsePath(f *os.File, fn func(path string) error) error {
	return Use(f, func(fd int) error { return fn(fmt.Sprintf("/proc/self/fd/%d", fd)) })
}
