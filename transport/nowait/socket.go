package nowait

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Socket makes single attempts to read from and to write to a socket. Each
// direction is used by one goroutine at a time.
type Socket struct {
	raw     syscall.RawConn
	in, out attempt
	vector  vector
	// waits is true if the read in progress waits for bytes.
	waits bool
}

// attempt is one attempt in one direction.
type attempt struct {
	// run is created once, so that a call allocates nothing. It works on p, or on
	// parts if they are not nil, and stores its result in n and err.
	run   func(fd uintptr) bool
	p     []byte
	parts [][]byte
	n     int
	err   error
}

// NewSocket returns the socket of a connection, or nil if it is not one.
func NewSocket(c net.Conn) (*Socket, error) {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return nil, nil //nolint:nilnil // a connection that is not a socket has none
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Socket{raw: raw}
	s.in.run = func(fd uintptr) bool {
		// After an interrupt the runtime would wait for more than what is there.
		for s.in.err = syscall.EINTR; errors.Is(s.in.err, syscall.EINTR); {
			s.in.n, s.in.err = Read(fd, s.in.p)
		}
		return !s.waits || !errors.Is(s.in.err, syscall.EAGAIN)
	}
	s.out.run = func(fd uintptr) bool {
		if s.out.parts != nil {
			s.out.n, s.out.err = s.vector.send(fd, s.out.parts)
			return true
		}
		s.out.n, s.out.err = write(fd, s.out.p)
		return true
	}
	return s, nil
}

// Read reads bytes that have arrived into p, which is not empty. 0 and no error
// mean that there are none.
//
// Errors: io.EOF; those of the deadline and of the socket.
func (s *Socket) Read(p []byte) (int, error) {
	s.waits = false
	n, again, err := s.read(p)
	if n == 0 && !again && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// Await reads bytes into p, and waits for them if none have arrived.
//
// Errors: as for Read.
func (s *Socket) Await(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.waits = true
	n, _, err := s.read(p)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}

func (s *Socket) read(p []byte) (n int, again bool, err error) {
	s.in.p = p
	return s.in.result(s.raw.Read(s.in.run))
}

// Write writes as much of p as there is room for.
func (s *Socket) Write(p []byte) (int, error) {
	s.out.p = p
	n, _, err := s.out.result(s.raw.Write(s.out.run))
	return n, err
}

// WriteParts is Write with the bytes of several parts, at most 1024, one after the
// other.
func (s *Socket) WriteParts(parts [][]byte) (int, error) {
	s.out.parts = parts
	n, _, err := s.out.result(s.raw.Write(s.out.run))
	return n, err
}

// result returns the result of an attempt, unless it could not be made. again
// means that it would have had to wait.
func (a *attempt) result(failure error) (n int, again bool, err error) {
	a.p, a.parts = nil, nil
	switch {
	case failure != nil:
		return 0, false, failure
	case errors.Is(a.err, syscall.EAGAIN) || errors.Is(a.err, syscall.EINTR):
		return 0, true, nil
	case a.err != nil:
		return 0, false, a.err
	}
	return a.n, false, nil
}
