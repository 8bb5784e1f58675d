package frames

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter leaves waits to the runtime. Its methods may be called from any goroutine.
type waiter struct {
	mu sync.Mutex
	// later is an epoll of its own, which tells the runtime that there is something to read; nil
	// until it is first needed. watch is that of later.
	// +checklocks:mu
	later *os.File
	// +checklocks:mu
	watch syscall.RawConn
	// +checklocks:mu
	closed bool
}

// get returns the epoll.
//
// Errors: os.ErrClosed.
func (w *waiter) get() (later *os.File, watch syscall.RawConn, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, os.ErrClosed
	}
	if w.later == nil {
		later, err = newWatch()
		if err == nil {
			watch, err = later.SyscallConn()
		}
		if err != nil {
			_ = later.Close() // the failure is returned; a nil one is refused
			return nil, nil, err
		}
		w.later, w.watch = later, watch
	}
	return w.later, w.watch, nil
}

// interrupt ends a wait in progress, or the next.
func (w *waiter) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.later != nil {
		_ = w.later.SetReadDeadline(time.Unix(1, 0)) // a closed connection needs none
	}
}

func (w *waiter) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	closed := w.closed
	w.closed = true
	if w.later == nil || closed {
		return nil
	}
	return w.later.Close()
}

// newWatch returns an epoll that the runtime watches.
func newWatch() (*os.File, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	err = unix.SetNonblock(fd, true) // the runtime watches no others
	f := os.NewFile(uintptr(fd), "watch")
	// One that is not watched has no deadlines.
	return f, errors.Join(err, f.SetReadDeadline(time.Time{}))
}

// sleep waits until there is something to read from a descriptor, for any time, without a thread. cut is set for an
// interruption; nil for a descriptor whose waits have none.
//
// Errors: os.ErrDeadlineExceeded after an interruption; os.ErrClosed once the waiter is closed.
func (w *waiter) sleep(from syscall.RawConn, cut *atomic.Bool) error {
	later, watch, err := w.get()
	if err != nil {
		return err
	}
	if cut != nil && cut.CompareAndSwap(true, false) { // before there was something to interrupt
		_ = later.SetReadDeadline(time.Time{}) // a closed one fails the next read
		return os.ErrDeadlineExceeded
	}
	if err = control(watch, from, unix.EPOLL_CTL_ADD, unix.EPOLLIN); err != nil {
		return err
	}
	// What is there already is reported at once.
	err = waitFor(watch)
	err = errors.Join(err, control(watch, from, unix.EPOLL_CTL_DEL, unix.EPOLLIN))
	if cut != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = later.SetReadDeadline(time.Time{}) // a closed one fails the next read
		cut.Store(false)
	}
	return err
}

// waitFor waits until an epoll has an event.
func waitFor(watch syscall.RawConn) error {
	var events [1]unix.EpollEvent
	return watch.Read(func(fd uintptr) bool {
		n, failed := unix.EpollWait(int(fd), events[:], 0)
		return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
	})
}

// control adds a descriptor to what an epoll watches, for some events, or removes it.
func control(watch, of syscall.RawConn, op int, events uint32) error {
	var closed, failed error
	err := watch.Control(func(at uintptr) {
		closed = of.Control(func(fd uintptr) {
			event := unix.EpollEvent{Events: events, Fd: int32(fd)}
			failed = os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(at), op, int(fd), &event))
		})
	})
	return errors.Join(err, closed, failed)
}
