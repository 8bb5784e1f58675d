package fabric

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// aheadSize is the least size of a read, in bytes, so that a header and the data that
// follows cost one call.
const aheadSize = 16 << 10

// socket is a stream over a socket that this package owns alone.
type socket struct {
	fd   int
	vec  [2]unix.Iovec
	buf  [aheadSize]byte
	from int
	to   int
	// asked is the length of the last receive.
	asked int
	// failed is the error that ended the stream.
	failed error
	// zeroCopier sends memory without copying.
	zeroCopier zeroCopier
}

// newSocket takes over a connection. conn is closed in any case.
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
		return nil, fmt.Errorf("take over a connection: %w", err)
	}
	return s, nil
}

// near adapts the socket to a peer on this host. No other traffic shares the link, so
// congestion control that paces packets by a clock, such as bbr, only adds delay.
func (s *socket) near() {
	// If this is not permitted, or there is no TCP, the socket stays as it is.
	_ = unix.SetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
}

func (s *socket) close() {
	s.zeroCopier.close()
	if s.fd >= 0 {
		// The connection is being discarded: its errors no longer matter.
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

// transient reports whether a call may succeed later.
func transient(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

// send sends as much as there is room for.
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
	// Bytes that arrived before the end can still be received.
	return 0, err
}

// receive takes the bytes that have arrived.
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

// buffered takes bytes from the read-ahead buffer.
func (s *socket) buffered(p []byte) int {
	n := copy(p, s.buf[s.from:s.to])
	s.from += n
	return n
}

// ahead receives into the read-ahead buffer, which must be empty.
func (s *socket) ahead() error {
	s.from, s.to = 0, 0
	n, err := s.now(s.buf[:])
	s.to = n
	return err
}

// now makes one call to receive.
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

// ready reports whether the socket can make the progress that w asks for; it checks the
// room for a send only if room is set.
func (s *socket) ready(w Want, room bool) bool {
	if s.failed != nil || w.Receive && s.from < s.to {
		return true
	}
	if w.Receive && s.asked < aheadSize && (s.ahead() != nil || s.to > 0) {
		return true
	}
	// A large receive goes directly to its destination. Polling for it takes no lock that
	// the sender would wait for.
	w.Receive = w.Receive && s.asked >= aheadSize
	w.Send = w.Send && room
	return (w.Receive || w.Send) && polled(s.pollFd(w))
}

// pollFd returns the descriptor and the events to wait for.
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

// doorbell wakes a rank that sleeps in poll by sending it one byte.
type doorbell struct{ socket *socket }

func (d *doorbell) ring() {
	// If there is no room, enough rings are pending.
	_, _ = d.socket.send([]byte{1}, nil)
}

// quiet reads the bytes of pending rings, with a limit in case the peer rings without end:
// bytes that are left wake us again.
//
// Errors: those of a doorbell that can no longer be rung.
func (d *doorbell) quiet() error {
	for range 2 {
		if err := d.socket.ahead(); err != nil || d.socket.to == 0 {
			return err
		}
	}
	return nil
}
