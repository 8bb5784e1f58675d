package fabric

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// aheadSize is the least that is received at once: a head, and what comes with
// it, then cost one call.
const aheadSize = 16 << 10

// socket is a stream over a socket, which is ours alone.
type socket struct {
	fd   int
	vec  [2]unix.Iovec
	buf  [aheadSize]byte
	from int
	to   int
	// asked is the number of bytes that were asked for last.
	asked int
	// failed says why it has ended.
	failed error
	// lender sends memory without a copy.
	lender lender
}

// newSocket takes a connection. It is closed in any case.
func newSocket(conn net.Conn, raw syscall.Conn) (*socket, error) {
	s := &socket{fd: -1}
	rc, err := raw.SyscallConn()
	if err == nil {
		var inner error
		err = rc.Control(func(fd uintptr) { s.fd, inner = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, inner)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		s.close()
		return nil, fmt.Errorf("take a connection: %w", err)
	}
	return s, nil
}

// near says that the peer is on this host. No link is shared with anybody then, and
// what paces its bytes by a clock, as bbr does, only makes them wait.
func (s *socket) near() {
	// Who may not, or has no TCP here, goes on as it is.
	_ = unix.SetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
}

func (s *socket) close() {
	s.lender.close()
	if s.fd >= 0 {
		// What it says is of a connection that nobody wants any more.
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

// transient says that a call may work later.
func transient(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

// send sends what there is room for.
func (s *socket) send(head, body []byte) (int, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	if len(head)+len(body) == 0 {
		return 0, nil
	}
	n, err := sendTwo(s.fd, &s.vec, head, body)
	if err == nil || transient(err) {
		return n, nil
	}
	// What has come before the end can still be received.
	return 0, err
}

// receive takes what has come.
func (s *socket) receive(p []byte) (int, error) {
	s.asked = len(p)
	n := s.buffered(p)
	if n == len(p) {
		return n, nil
	}
	if len(p) >= aheadSize {
		m, err := s.now(p[n:])
		if n+m > 0 {
			return n + m, nil
		}
		return 0, err
	}
	if n > 0 {
		return n, nil
	}
	if err := s.ahead(); err != nil {
		return 0, err
	}
	return s.buffered(p), nil
}

// buffered takes what was received ahead.
func (s *socket) buffered(p []byte) int {
	n := copy(p, s.buf[s.from:s.to])
	s.from += n
	return n
}

// ahead receives into the buffer, which is empty.
func (s *socket) ahead() error {
	s.from, s.to = 0, 0
	n, err := s.now(s.buf[:])
	s.to = n
	return err
}

// now receives once.
func (s *socket) now(p []byte) (int, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	n, err := receiveNow(s.fd, p)
	switch {
	case err == nil && n == 0:
		err = io.EOF
	case err == nil || transient(err):
		return n, nil
	}
	s.failed = err
	return 0, err
}

// ready says whether what somebody waits for is there; it looks at the room for
// a send only where asked.
func (s *socket) ready(w Want, room bool) bool {
	if s.failed != nil || w.Receive && s.from < s.to {
		return true
	}
	if w.Receive && s.asked < aheadSize && (s.ahead() != nil || s.to > 0) {
		return true
	}
	// What is much goes to its place at once. To look for it takes no lock that who
	// sends it has to wait for.
	w.Receive = w.Receive && s.asked >= aheadSize
	w.Send = w.Send && room
	return (w.Receive || w.Send) && polled(s.pollFd(w))
}

// pollFd returns the descriptor and events by which the socket is waited for.
func (s *socket) pollFd(w Want) unix.PollFd {
	fd := unix.PollFd{Fd: int32(s.fd)}
	if w.Receive {
		fd.Events |= unix.POLLIN
	}
	if w.Send {
		fd.Events |= unix.POLLOUT
	}
	return fd
}

// doorbell wakes a rank that sleeps in poll, by one byte.
type doorbell struct{ socket *socket }

func (d *doorbell) ring() {
	// Where there is no room it was rung often enough.
	_, _ = d.socket.send([]byte{1}, nil)
}

// quiet takes the bytes of those who have rung, but for a peer that rings without
// end: what the peer has left wakes us again.
//
// Errors: those of a doorbell that nobody can ring any more.
func (d *doorbell) quiet() error {
	for range 2 {
		if err := d.socket.ahead(); err != nil || d.socket.to == 0 {
			return err
		}
	}
	return nil
}
