package spin

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	// patience is the time the socket is polled before the reader sleeps: longer
	// than a peer takes to wake and answer, so that two readers fall into step.
	patience = 50 * time.Microsecond
	// maxSkip bounds the number of consecutive reads that sleep at once, after
	// earlier reads have polled in vain.
	maxSkip = 256
)

// Reader reads a connection. It is used by one goroutine at a time.
type Reader struct {
	conn net.Conn
	// raw is nil if the connection is not a socket, as with TLS, and asker if it
	// is not an Asker.
	raw   syscall.RawConn
	asker Asker
	// attempt is created once, so that a read allocates nothing; it reads into p
	// and stores its result in n and err.
	attempt func(fd uintptr) bool
	p       []byte
	n       int
	err     error
	// Eager makes reads spin.
	Eager bool
	// skip is the number of further reads that do not spin, since earlier ones
	// did so in vain.
	skip, next int
}

// Asker is a connection that is not a socket and can be read without waiting: 0
// and no error mean that nothing has arrived.
type Asker interface {
	ReadNow(p []byte) (int, error)
}

// New returns the reader of a connection.
func New(c net.Conn) (*Reader, error) {
	r := &Reader{conn: c, next: 1}
	if a, ok := c.(Asker); ok {
		r.asker = a
		return r, nil
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return r, nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	r.raw = raw
	r.attempt = func(fd uintptr) bool {
		r.n, r.err = syscall.Read(int(fd), r.p)
		return true
	}
	return r, nil
}

// Read reads from the connection like its own Read, after polling if Eager.
func (r *Reader) Read(p []byte) (int, error) {
	if !r.Eager || r.raw == nil && r.asker == nil || len(p) == 0 {
		return r.conn.Read(p)
	}
	if r.skip > 0 {
		r.skip--
		return r.conn.Read(p)
	}
	n, err := r.ask(p)
	if n > 0 || err != nil {
		r.next = 1
		return n, err
	}
	// The processors are busy, or the peer is slow: sleep at once for a while.
	r.skip = r.next
	r.next = min(2*r.next, maxSkip)
	return r.conn.Read(p)
}

// ask reads bytes that are available or arrive soon; 0 and no error mean that
// none did.
func (r *Reader) ask(p []byte) (int, error) {
	now := r.socket
	if r.asker != nil {
		now = r.asker.ReadNow
	}
	for begin := time.Now(); ; {
		if n, err := now(p); n > 0 || err != nil || time.Since(begin) > patience {
			return n, err
		}
	}
}

// socket reads the bytes that are available.
func (r *Reader) socket(p []byte) (int, error) {
	r.p = p
	defer func() { r.p = nil }()
	// It fails when the read deadline has passed.
	if err := r.raw.Read(r.attempt); err != nil {
		return 0, err
	}
	switch {
	case errors.Is(r.err, syscall.EAGAIN) || errors.Is(r.err, syscall.EINTR):
		return 0, nil
	case r.err != nil:
		return 0, r.err
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}
