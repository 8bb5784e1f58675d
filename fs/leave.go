package fs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Leave takes no more requests from the kernel, which has them for the process that continues the mount, and
// sends it those again that this process has not answered. The caller ends the process after it: a process that is killed
// while the kernel copies a request or an answer makes that request fail (EIO) if a page of the memory is not
// there, and none is copied any more then.
//
// Errors: ErrNotResumable for a mount that is not kept; os.ErrDeadlineExceeded if a thread does not end its system
// call; the kernel's.
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
	return errors.Join(unix.Close(pair[0]), interruptThreads())
}

// leaveLimit bounds the time in which threads end what the kernel copies for them.
const leaveLimit = time.Second

// interruptThreads has the system calls in which threads of this process wait begin again, so that a read finds
// what its descriptor is now, and returns when all that were in progress have ended. The Go runtime uses the signal
// itself, for threads that do not leave a loop.
func interruptThreads() error {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err == nil {
			err = unix.Tgkill(os.Getpid(), id, unix.SIGURG)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			return fmt.Errorf("interrupt thread %d: %w", id, err)
		}
	}
	for limit := time.Now().Add(leaveLimit); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, thread := range threads {
			if isPending(thread) {
				threads[left] = thread
				left++
			}
		}
		threads = threads[:left]
		switch {
		case left == 0:
			return nil
		case time.Now().After(limit):
			return fmt.Errorf("%d threads do not end their system calls: %w", left, os.ErrDeadlineExceeded)
		}
	}
}

// isPending reports whether a thread has not had its signal yet: it is in a system call that does not
// end for it, or has not run since.
func isPending(thread string) bool {
	status, err := os.ReadFile(filepath.Join(thread, "status"))
	if err != nil {
		return false // it has ended
	}
	_, after, _ := strings.Cut(string(status), "\nSigPnd:\t")
	set, _, _ := strings.Cut(after, "\n")
	pending, err := strconv.ParseUint(set, 16, 64)
	return err == nil && pending&(1<<(unix.SIGURG-1)) != 0
}
