package fs

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Leave takes no more requests from the kernel, which has them for the process that continues the mount, and
// sends it those again that this process has not answered. The caller ends the process soon after: a process that is killed
// while the kernel copies a request or an answer makes that request fail (EIO) if a page of the memory is not
// there, and none is copied any more then.
//
// Errors: ErrNotResumable for a mount that is not kept; the kernel's.
func (s *Server) Leave() error {
	if s.device == 0 {
		return fmt.Errorf("%w: it is not kept", ErrNotResumable)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a connection: %w", err)
	}
	s.left = os.NewFile(uintptr(pair[1]), "left")
	if err = unix.Dup3(pair[0], s.device, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("leave the mount: %w", err)
	}
	return errors.Join(unix.Close(pair[0]), interruptReads())
}

// interruptReads has the system calls of this process begin again in which a thread waits: a read finds then
// what its descriptor is now. The Go runtime uses the signal itself, for threads that do not leave a loop.
func interruptReads() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("find the threads of this process: %w", err)
	}
	var errs []error
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err == nil {
			err = unix.Tgkill(os.Getpid(), id, unix.SIGURG)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			errs = append(errs, fmt.Errorf("interrupt thread %s: %w", task.Name(), err))
		}
	}
	return errors.Join(errs...)
}
