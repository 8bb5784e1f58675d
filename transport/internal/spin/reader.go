package spin

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	// patience is the time that the socket is asked before the reader sleeps: longer
	// than a peer takes to wake and answer, so that two readers come to agree.
	patience = 50 * time.Microsecond
	// maxSkip bounds the reads that sleep at once after others have asked
	// in vain.
	maxSkip = 256
)

// Reader reads a connection. It is used by one goroutine at a time.
type Reader struct {
	conn net.Conn
	// raw is nil where the connection is no socket, as with TLS, and asker where
	// it is no Asker.
	raw   syscall.RawConn
	asker Asker
	// attempt is made once, so that a read allocates nothing; it works on p and
	// leaves n and err.
	attempt func(fd uintptr) bool
	p       []byte
	n       int
	err     error
	// Eager makes reads spin.
	Eager bool
	// skip is the number of reads that do not, since the last ones did so in vain.
	skip, next int
}

// Asker is a connection that is no socket and can be read without waiting: 0 and no
// error is that nothing has come.
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

// Read is that of the connection.
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
	// Busy processors, or a peer that takes its time: sleep at once for a while.
	r.skip = r.next
	r.next = min(2*r.next, maxSkip)
	return r.conn.Read(p)
}

// ask reads what is there or comes soon; nothing and no error is that nothing
// has come.
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

// socket reads what is there.
func (r *Reader) socket(p []byte) (int, error) {
	r.p = p
	defer func() { r.p = nil }()
	// It fails when the deadline for reads is over.
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
