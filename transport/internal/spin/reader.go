package spin

import (
	"net"
	"time"

	"github.com/hmcfs/hmcfs/transport/nowait"
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
	// wait reads, and waits for bytes.
	wait func(p []byte) (int, error)
	// now reads without waiting: 0 and no error mean that nothing has arrived. It is
	// nil if the connection is neither a socket nor an Asker, as with TLS.
	now func(p []byte) (int, error)
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
	r := &Reader{conn: c, wait: c.Read, next: 1}
	if a, ok := c.(Asker); ok {
		r.now = a.ReadNow
		return r, nil
	}
	s, err := nowait.NewSocket(c)
	if err != nil {
		return nil, err
	}
	if s != nil {
		r.now, r.wait = s.Read, s.Await
	}
	return r, nil
}

// Read reads from the connection like its own Read, after polling if Eager.
func (r *Reader) Read(p []byte) (int, error) {
	if !r.Eager || r.now == nil || len(p) == 0 {
		return r.wait(p)
	}
	if r.skip > 0 {
		r.skip--
		return r.wait(p)
	}
	n, err := r.ask(p)
	if n > 0 || err != nil {
		r.next = 1
		return n, err
	}
	// The processors are busy, or the peer is slow: sleep at once for a while.
	r.skip = r.next
	r.next = min(2*r.next, maxSkip)
	return r.wait(p)
}

// ask reads bytes that are available or arrive soon; 0 and no error mean that
// none did.
func (r *Reader) ask(p []byte) (int, error) {
	for begin := time.Now(); ; {
		if n, err := r.now(p); n > 0 || err != nil || time.Since(begin) > patience {
			return n, err
		}
	}
}
