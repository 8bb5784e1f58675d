package ucx

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// wakeup waits for a descriptor of the library with Go's poller, so that a
// sleeping worker holds no thread.
type wakeup struct {
	file *os.File
	raw  syscall.RawConn
	ring func(fd uintptr) bool
	err  error
	poll [1]unix.PollFd
}

// newWakeup makes a wakeup for a descriptor, which remains the caller's.
func newWakeup(fd int) (*wakeup, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("event descriptor of the worker: %w", err)
	}
	// The poller accepts only non-blocking descriptors, and nothing reads this
	// one.
	if err = unix.SetNonblock(own, true); err != nil {
		_ = unix.Close(own)
		return nil, fmt.Errorf("event descriptor of the worker: %w", err)
	}
	b := &wakeup{file: os.NewFile(uintptr(own), "ucx events")}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		_ = b.file.Close()
		return nil, fmt.Errorf("event descriptor of the worker: %w", err)
	}
	b.ring = b.rung
	return b, nil
}

// wait returns when the descriptor is ready.
func (b *wakeup) wait() error {
	if err := b.raw.Read(b.ring); err != nil {
		return fmt.Errorf("wait for the worker's events: %w", err)
	}
	return b.err
}

// rung checks the descriptor without waiting.
func (b *wakeup) rung(fd uintptr) bool {
	b.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	for {
		n, err := unix.Poll(b.poll[:], 0)
		if err == unix.EINTR {
			continue
		}
		b.err = err
		return n > 0 || err != nil
	}
}

// Close closes the duplicated descriptor. No goroutine waits any more.
func (b *wakeup) Close() error { return b.file.Close() }
