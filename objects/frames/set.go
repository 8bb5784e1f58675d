package frames

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// atOnce is the number of connections that one Wait reports at most.
const atOnce = 64

// Set waits for many connections in one thread: those that have something to read are found by one system call, and no other
// thread wakes up for any. Only one goroutine may call Wait at a time, and none may beside Close; the other methods may be
// called from any goroutine.
type Set struct {
	file *os.File // an epoll
	raw  syscall.RawConn
	wait waiter
	// try is attempt, made once.
	try func(fd uintptr) bool
	// The following fields belong to the waiting goroutine.
	events  [atOnce]unix.EpollEvent
	n       int
	err     error
	spinner spinner
	// turn is the time of the last turn of other goroutines.
	turn time.Time
}

// NewSet returns a set without connections, which the caller must close. all bounds the sets and connections that poll.
func NewSet(all *Pollers) (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	s := &Set{file: os.NewFile(uintptr(fd), "set"), spinner: spinner{all: all}}
	s.try = s.attempt
	if s.raw, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// Add adds a connection with a number, which Wait reports while there is something to read from it, or it has ended. It must be removed
// before it is closed.
func (s *Set) Add(c *Conn, id uint64) error {
	return s.control(c, unix.EPOLL_CTL_ADD, unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(uint32(id)), Pad: int32(id >> 32)})
}

// Remove removes a connection. A Wait that has returned may have reported it.
func (s *Set) Remove(c *Conn) error { return s.control(c, unix.EPOLL_CTL_DEL, unix.EpollEvent{}) }

func (s *Set) control(c *Conn, op int, event unix.EpollEvent) error {
	var closed, failed error
	err := s.raw.Control(func(at uintptr) {
		closed = c.raw.Control(func(fd uintptr) {
			failed = os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(at), op, int(fd), &event))
		})
	})
	if err = errors.Join(err, closed, failed); err != nil {
		return fmt.Errorf("wait for a connection: %w", err)
	}
	return nil
}

// Wait waits until there is something to read from connections, and appends their numbers to ids.
func (s *Set) Wait(ids []uint64) ([]uint64, error) {
	if now := time.Now(); now.Sub(s.turn) > turnFor {
		s.turn = now
		runtime.Gosched()
	}
	for s.n = 0; ; {
		err := s.raw.Read(s.try)
		if err == nil {
			err = s.err
		}
		if err != nil {
			return ids, err
		}
		if s.n > 0 {
			break
		}
		if err = s.wait.sleep(s.raw, nil); err != nil {
			return ids, err
		}
	}
	for _, e := range s.events[:s.n] {
		ids = append(ids, uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32)
	}
	return ids, nil
}

// attempt polls, and waits for a limited time. Its result says that the runtime has nothing to wait for.
func (s *Set) attempt(fd uintptr) bool {
	if !s.spinner.spin(s, int32(fd), pollFor) {
		s.there(int32(fd), dozeFor)
	}
	return true
}

// there implements looker.
func (s *Set) there(fd int32, within time.Duration) bool {
	n, err := unix.EpollWait(int(fd), s.events[:], int(within.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		s.err = os.NewSyscallError("epoll_wait", err)
	}
	s.n = max(n, 0)
	return s.n > 0 || s.err != nil
}

// Close releases the set.
func (s *Set) Close() error { return errors.Join(s.file.Close(), s.wait.close()) }
