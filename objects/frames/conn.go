package frames

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/nowait"
)

const (
	// turnFor is the time after which a reader gives other goroutines their turn. From one that
	// does not do so for 10 ms, the runtime takes the processor in each of its system calls, and
	// two more threads wake up for each.
	turnFor = 5 * time.Millisecond
	// dozeFor is the time for which a reader sleeps in a thread of its own, before it leaves the
	// wait to the runtime. A thread that sleeps in the kernel is woken by the peer itself, and
	// goes on without the runtime's search for work.
	dozeFor = 2 * time.Millisecond
	// LongestPlain is the length, in bytes, of the longest read into memory that is surely that of a buffer. The memory of a longer one may
	// be the caller's, and have to be fetched from a disk or another machine: the runtime is told of that wait.
	LongestPlain = 16 << 10
	// firstFree is the lowest descriptor of a Conn: those below are of standard files.
	firstFree = 3
)

// Conn is a client's end of a connection. The runtime does not watch it while an answer is
// expected soon: a process of which one thread waits for the answer, and another for whatever
// happens on its connections, is woken twice for each answer, and again when the daemon has read
// a call. Only after a longer wait does the thread leave the wait to the runtime.
//
// Only one goroutine may read, and one may write, at a time; the other methods may be used
// concurrently.
type Conn struct {
	// Descriptors passes those of requests and answers. Close closes it.
	Descriptors *Channel

	file *os.File // a socket in blocking mode, whose writes have a limit
	raw  syscall.RawConn
	// wait is made when a read has to wait for long: most connections of many never do.
	wait waiter
	// ends is that of AwaitEnd.
	ends waiter
	// try is attempt, and put attemptWrite, both made once.
	try, put func(fd uintptr) bool
	// cut is true when the next Read, or that in progress, returns os.ErrDeadlineExceeded.
	cut atomic.Bool

	// The following fields belong to the writing goroutine: what it writes, and what became of that.
	out    []byte
	sent   int
	unsent error

	// The following fields belong to the reading goroutine.
	into []byte
	n    int
	err  error
	// poll and limit are the arguments of a poll.
	poll    [1]unix.PollFd
	limit   unix.Timespec
	backoff backoff
	// turn is the time of the last turn of other goroutines.
	turn time.Time
	// patience is the time for which a read polls before it sleeps, beyond pollFor.
	patience time.Duration
}

// Expect sets how long the next reads poll, beyond the usual time, for an answer to a call that takes
// longer than most. It is for the reading goroutine.
func (c *Conn) Expect(longer time.Duration) { c.patience = longer }

// Adopt returns a connection whose writes fail once the peer has read nothing for a time. It
// closes the one that it gets, and owns the channel, which is nil for none.
func Adopt(c *net.UnixConn, channel *Channel, limit time.Duration) (_ *Conn, err error) {
	k := &Conn{Descriptors: channel}
	k.try, k.put = k.attempt, k.attemptWrite
	k.file, err = adoptFile(c, limit)
	if err = errors.Join(err, c.Close()); err == nil {
		k.raw, err = k.file.SyscallConn()
	}
	if err != nil {
		_ = k.file.Close() // the failure is returned; a nil one is refused
		_ = channel.Close()
		return nil, fmt.Errorf("adopt a connection: %w", err)
	}
	return k, nil
}

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

// adoptFile returns a file of the socket of a connection, in blocking mode, whose writes have a limit.
func adoptFile(c *net.UnixConn, limit time.Duration) (*os.File, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	failed := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, firstFree) })
	if err = errors.Join(failed, err); err != nil {
		return nil, err
	}
	writes := unix.NsecToTimeval(int64(limit))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &writes),
		unix.SetNonblock(fd, false),
	)
	return os.NewFile(uintptr(fd), "session"), err
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

// Read implements io.Reader. After Interrupt it returns os.ErrDeadlineExceeded, perhaps twice.
func (c *Conn) Read(b []byte) (int, error) {
	if c.cut.Load() && c.cut.CompareAndSwap(true, false) {
		return 0, os.ErrDeadlineExceeded
	}
	if now := time.Now(); now.Sub(c.turn) > turnFor {
		c.turn = now
		runtime.Gosched()
	}
	for {
		c.into, c.n, c.err = b, 0, unix.EAGAIN
		err := c.raw.Read(c.try)
		c.into = nil
		if err == nil {
			err = c.err
		}
		if !errors.Is(err, unix.EAGAIN) {
			return c.n, err
		}
		if err = c.sleep(); err != nil {
			return 0, err
		}
	}
}

// attempt polls, and waits for a limited time. Its result says that the runtime has nothing to
// wait for.
func (c *Conn) attempt(fd uintptr) bool {
	if done := c.spin(fd) || c.there(int32(fd), dozeFor) && c.receive(fd); !done {
		c.err = unix.EAGAIN
	}
	return true
}

// receive makes one attempt to read. It reports whether the read is done.
func (c *Conn) receive(fd uintptr) bool {
	attempt := nowait.Receive
	if len(c.into) > LongestPlain {
		attempt = nowait.ReceivePaged
	}
	for {
		n, err := attempt(fd, c.into)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			c.err = os.NewSyscallError("recvfrom", err)
		case n == 0 && len(c.into) > 0:
			c.err = io.EOF
		default:
			c.n, c.err = n, nil
		}
		return true
	}
}

// there reports whether there is something to read, or is within a time. A read that waits
// would also be woken when the daemon has read a call.
func (c *Conn) there(fd int32, limit time.Duration) bool {
	c.limit = unix.NsecToTimespec(int64(limit)) // the kernel changes it
	c.poll[0] = unix.PollFd{Fd: fd, Events: unix.POLLIN}
	n, err := unix.Ppoll(c.poll[:], &c.limit, nil)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR) // the read has the error
}

// spin is receive, repeated until the read is done, or the time is over.
func (c *Conn) spin(fd uintptr) bool {
	if c.backoff.skips() {
		return false
	}
	began := time.Now()
	for turn := 1; ; turn++ {
		if c.receive(fd) {
			c.backoff.hit()
			return true
		}
		if turn%pollLook == 0 && time.Since(began) > pollFor+c.patience {
			break
		}
	}
	c.backoff.miss()
	return false
}

// sleep waits until there is something to read, for any time, without a thread.
//
// Errors: os.ErrDeadlineExceeded after Interrupt; os.ErrClosed once the connection is closed.
func (c *Conn) sleep() error {
	later, watch, err := c.wait.get()
	if err != nil {
		return err
	}
	if c.cut.CompareAndSwap(true, false) { // before there was something to interrupt
		_ = later.SetReadDeadline(time.Time{}) // a closed one fails the next read
		return os.ErrDeadlineExceeded
	}
	if err = c.control(watch, unix.EPOLL_CTL_ADD, unix.EPOLLIN); err != nil {
		return err
	}
	// What is there already is reported at once.
	err = waitFor(watch)
	err = errors.Join(err, c.control(watch, unix.EPOLL_CTL_DEL, unix.EPOLLIN))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = later.SetReadDeadline(time.Time{}) // a closed one fails the next read
		c.cut.Store(false)
	}
	return err
}

// AwaitEnd returns without an error when the connection has ended, by the peer or by this side. It may be called
// once, beside the other methods; it is not woken by what arrives.
func (c *Conn) AwaitEnd() error {
	_, watch, err := c.ends.get()
	if err == nil {
		err = c.control(watch, unix.EPOLL_CTL_ADD, unix.EPOLLRDHUP)
	}
	if err == nil {
		err = waitFor(watch)
	}
	err = errors.Join(err, c.ends.close())
	if errors.Is(err, os.ErrClosed) {
		return nil
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

// control adds the socket to what an epoll watches, for some events, or removes it.
func (c *Conn) control(watch syscall.RawConn, op int, events uint32) error {
	var closed, failed error
	err := watch.Control(func(at uintptr) {
		closed = c.raw.Control(func(fd uintptr) {
			event := unix.EpollEvent{Events: events, Fd: int32(fd)}
			failed = os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(at), op, int(fd), &event))
		})
	})
	return errors.Join(err, closed, failed)
}

// Interrupt ends the Read in progress soon, or the next.
func (c *Conn) Interrupt() {
	c.cut.Store(true)
	c.wait.interrupt()
}

// Write sends a frame, in pieces one after the other.
func (c *Conn) Write(frame []byte, more ...[]byte) error {
	if len(more) == 0 {
		n, err := c.send(frame)
		if err == nil && n < len(frame) {
			_, err = c.file.Write(frame[n:])
		}
		return err
	}
	pieces := append([][]byte{frame}, more...)
	for len(pieces) > 0 {
		n, err := c.writev(pieces)
		if err != nil {
			return err
		}
		for len(pieces) > 0 && n >= len(pieces[0]) {
			n -= len(pieces[0])
			pieces = pieces[1:]
		}
		if n > 0 {
			pieces[0] = pieces[0][n:]
		}
	}
	return nil
}

// send writes as much of a frame as there is room for, often all of it.
func (c *Conn) send(frame []byte) (n int, err error) {
	c.out, c.sent, c.unsent = frame, 0, nil
	err = c.raw.Write(c.put)
	c.out = nil
	if errors.Is(c.unsent, unix.EAGAIN) || errors.Is(c.unsent, unix.EINTR) {
		c.unsent = nil
	}
	return c.sent, errors.Join(err, os.NewSyscallError("sendto", c.unsent))
}

// attemptWrite makes one attempt to write.
func (c *Conn) attemptWrite(fd uintptr) bool {
	c.sent, c.unsent = nowait.Send(fd, c.out)
	return true
}

// writev writes a part of the pieces.
func (c *Conn) writev(pieces [][]byte) (n int, err error) {
	failed := c.raw.Write(func(fd uintptr) bool {
		for {
			if n, err = unix.Writev(int(fd), pieces); !errors.Is(err, unix.EINTR) {
				return true
			}
		}
	})
	return n, errors.Join(failed, os.NewSyscallError("writev", err))
}

// Shut ends one direction, unix.SHUT_RD or unix.SHUT_WR, or both.
func (c *Conn) Shut(how int) {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), how) }) // the peer may have gone
}

// Close closes the connection, and ends its reads and writes.
func (c *Conn) Close() error {
	c.Shut(unix.SHUT_RDWR)
	return errors.Join(c.file.Close(), c.wait.close(), c.ends.close(), c.Descriptors.Close())
}
