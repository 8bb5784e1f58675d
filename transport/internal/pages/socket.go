package pages

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is one direction of a TCP connection. One goroutine uses it at a time.
type Socket struct {
	raw syscall.RawConn
	// attempt is created once, so that a call allocates nothing. It works on
	// pipe, head and n, and stores its result in k and err.
	attempt func(fd uintptr) bool
	pipe    *Pipe
	head    []byte
	n, k    int
	err     error
}

// Sender returns the sending direction of a connection, or nil if it is not a TCP
// socket.
func Sender(c net.Conn) *Socket { return newSocket(c, (*Socket).send) }

// Receiver returns the receiving direction, or nil like Sender.
func Receiver(c net.Conn) *Socket { return newSocket(c, (*Socket).receive) }

func newSocket(c net.Conn, attempt func(s *Socket, fd uintptr) bool) *Socket {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{raw: raw}
	s.attempt = func(fd uintptr) bool { return attempt(s, fd) }
	return s
}

// Send writes head and everything in the pipe, and calls moved whenever bytes
// have been sent.
func (s *Socket) Send(head []byte, p *Pipe, moved func()) error {
	s.head, s.pipe = head, p
	defer func() { s.head, s.pipe = nil, nil }()
	for len(s.head) > 0 || p.held > 0 {
		if err := s.raw.Write(s.attempt); err != nil {
			return err
		}
		if s.err != nil {
			return fmt.Errorf("send pages: %w", s.err)
		}
		moved()
	}
	return nil
}

// send makes one attempt to write: of the head, then of the pipe.
func (s *Socket) send(fd uintptr) bool {
	if len(s.head) > 0 {
		s.k, s.err = unix.SendmsgN(int(fd), s.head, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
		if s.err == nil {
			s.head = s.head[s.k:]
		}
	} else if s.k, s.err = splice(s.pipe.r, nil, int(fd), nil, s.pipe.held); s.err == nil {
		s.pipe.held -= s.k
		if s.k == 0 {
			s.err = io.ErrShortWrite
		}
	}
	return s.done()
}

// Receive moves up to n bytes into the pipe, which has room for them: those that
// have arrived, as far as they fit, and at least one byte.
//
// Errors: io.EOF.
func (s *Socket) Receive(p *Pipe, n int) (int, error) {
	s.pipe, s.n = p, n
	defer func() { s.pipe = nil }()
	if err := s.raw.Read(s.attempt); err != nil {
		return 0, err
	}
	switch {
	case s.err != nil:
		return 0, fmt.Errorf("receive pages: %w", s.err)
	case s.k == 0:
		return 0, io.EOF
	}
	return s.k, nil
}

// receive makes one attempt to read. Writing a file is faster the more bytes come
// at once, so it continues until no more are available, or until the pipe is
// full, which looks the same.
func (s *Socket) receive(fd uintptr) bool {
	var got int
	for got < s.n {
		if s.k, s.err = splice(int(fd), nil, s.pipe.w, nil, s.n-got); s.err != nil || s.k == 0 {
			break
		}
		got += s.k
	}
	if s.pipe.held += got; got > 0 {
		// The end, or an error, will be found again.
		s.k, s.err = got, nil
	}
	return s.done()
}

// done reports whether an attempt need not be repeated when the socket is ready.
func (s *Socket) done() bool {
	again := errors.Is(s.err, unix.EAGAIN)
	if again || errors.Is(s.err, unix.EINTR) {
		s.k, s.err = 0, nil
	}
	return !again
}
