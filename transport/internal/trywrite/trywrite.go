package trywrite

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Writer tries to write to one connection. It is used by one goroutine at a
// time. The zero value never writes anything.
type Writer struct {
	// raw is nil if the connection is not a socket, and trier if it is not a
	// Trier.
	raw   syscall.RawConn
	trier Trier
	// attempt is created once, so that a call allocates nothing; it writes p and
	// stores its result in n and err.
	attempt func(fd uintptr) bool
	p       []byte
	parts   [][]byte
	vector  vector
	n       int
	err     error
}

// Trier is a connection that is not a socket and can accept what fits without
// waiting.
type Trier interface {
	Try(p []byte) (int, error)
	TryParts(parts [][]byte) (int, error)
}

// New returns the writer of a connection: of a socket, or of a Trier. Any other
// connection, such as one of TLS, gets a writer that writes nothing.
func New(c net.Conn) (*Writer, error) {
	w := &Writer{}
	if t, ok := c.(Trier); ok {
		w.trier = t
		return w, nil
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return w, nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	w.raw = raw
	w.attempt = func(fd uintptr) bool {
		if w.parts != nil {
			w.n, w.err = w.vector.send(fd, w.parts)
			return true
		}
		// The socket does not block, and this call tells the race detector that a
		// peer's answer comes after it.
		w.n, w.err = syscall.Write(int(fd), w.p)
		w.n = max(w.n, 0)
		return true
	}
	return w, nil
}

// Try writes as much of p as fits now, often nothing. After an error the
// connection is unusable.
func (w *Writer) Try(p []byte) (int, error) {
	if w.trier != nil {
		return w.trier.Try(p)
	}
	if w.raw == nil || len(p) == 0 {
		return 0, nil
	}
	w.p = p
	return w.write()
}

// TryParts is Try with the bytes of several parts, at most 1024, one after the
// other.
func (w *Writer) TryParts(parts [][]byte) (int, error) {
	if w.trier != nil {
		return w.trier.TryParts(parts)
	}
	if w.raw == nil || len(parts) == 0 {
		return 0, nil
	}
	w.parts = parts
	return w.write()
}

// write makes the attempt.
func (w *Writer) write() (int, error) {
	w.n, w.err = 0, nil
	err := w.raw.Write(w.attempt)
	w.p, w.parts = nil, nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(w.err, unix.EAGAIN) || errors.Is(w.err, unix.EINTR):
		return 0, nil
	case w.err != nil:
		return 0, w.err
	}
	return w.n, nil
}
