package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitEnd waits until a daemon has released its lock and its process has ended. For a
// daemon in this process it waits only for the lock.
func AwaitEnd(ctx context.Context, pid int, lock string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if !isHeld(lock) && hasEnded(pid) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d has not ended: %w", pid, ctx.Err())
		}
	}
}

// hasEnded reports whether a process has ended; a zombie that its parent has not reaped has
// ended.
func hasEnded(pid int) bool {
	if pid == os.Getpid() {
		return true
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return !errors.Is(err, unix.ENOSYS)
	}
	defer func() { _ = unix.Close(fd) }()
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(polled, 0)
	return err == nil && n > 0
}

// Killed reports whether the holder ends because of SIGKILL. It has its locks until the kernel has
// freed its memory.
func (h Holder) Killed() bool {
	if h.PID == 0 {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID))
	if err != nil {
		return false
	}
	// The signal stays pending until the process is reaped.
	_, after, _ := strings.Cut(string(text), "\nShdPnd:\t")
	mask, _, _ := strings.Cut(after, "\n")
	pending, err := strconv.ParseUint(mask, 16, 64)
	return err == nil && pending&(1<<(unix.SIGKILL-1)) != 0
}
