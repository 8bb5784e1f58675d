package seal

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/transport/nowait"
)

// ErrCut reports that a connection ended without an END record from the peer.
var ErrCut = errors.New("seal: the connection was cut by the peer or in transit")

const (
	// smallBuffer is the size, in bytes, of the buffer of a connection with small records.
	smallBuffer = 12 << 10
	// largeBuffer has room for a record of any size, and for small ones in addition.
	largeBuffer = MaxRecord + Overhead + smallBuffer
)

// Conn is a connection after the handshake. The package documentation describes
// the guarantees of its methods.
type Conn struct {
	// Conn is the underlying connection, of which only addresses and deadlines
	// are used from outside.
	net.Conn

	// now makes attempts on the socket; nil if the connection is not a socket.
	now *nowait.Socket

	// held is the result of Buffered.
	held atomic.Int64

	reading sync.Mutex
	// +checklocks:reading
	in *direction
	// buf holds, from r to w, records that were read and not yet returned.
	// +checklocks:reading
	buf []byte
	// +checklocks:reading
	r int
	// +checklocks:reading
	w int
	// plain holds decrypted bytes beyond those that the last Read asked for.
	// +checklocks:reading
	plain []byte
	// ahead allows reading more than is needed.
	// +checklocks:reading
	ahead bool
	// readError is the reason why nothing more is read.
	// +checklocks:reading
	readError error

	writing sync.Mutex
	// +checklocks:writing
	out *direction
	// records is the buffer in which records are made. left holds those that the
	// kernel has not accepted: a goroutine writes them.
	// +checklocks:writing
	records []byte
	// +checklocks:writing
	left []byte
	// +checklocks:writing
	writeError error
	flushes    sync.WaitGroup
}

func newConn(raw net.Conn, send, receive [KeySize]byte) (*Conn, error) {
	out, err := newDirection(send)
	if err != nil {
		return nil, err
	}
	in, err := newDirection(receive)
	if err != nil {
		return nil, err
	}
	now, err := nowait.NewSocket(raw)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: raw, in: in, out: out, now: now}, nil
}

// NetConn returns the underlying connection. Writing to it breaks this one.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Ahead allows reading more from the socket than is needed at once.
func (c *Conn) Ahead() {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.ahead = true
}

// Buffered returns the number of bytes that have been read from the socket and
// not yet returned.
func (c *Conn) Buffered() int { return int(c.held.Load()) }

// Read waits until bytes arrive, as net.Conn does.
//
// Errors: io.EOF after the peer's last record; ErrCut; ErrForged; those of the
// underlying connection.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.readLocked(p, c.Conn.Read)
}

// ReadNow is Read without waiting: 0 and no error mean that no whole record has
// arrived.
func (c *Conn) ReadNow(p []byte) (int, error) {
	if len(p) == 0 || c.now == nil {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err := c.readLocked(p, c.attempt)
	if errors.Is(err, errAgain) {
		return 0, nil
	}
	return n, err
}

// errAgain reports that a socket has nothing to read now.
var errAgain = errors.New("seal: the operation would block")

// attempt reads the bytes that have arrived; errAgain reports that there are none.
func (c *Conn) attempt(p []byte) (int, error) {
	n, err := c.now.Read(p)
	if n == 0 && err == nil {
		err = errAgain
	}
	return n, err
}

// readLocked returns the rest of a record, or the next one, which it reads by
// from.
//
// +checklocks:c.reading
func (c *Conn) readLocked(p []byte, from func([]byte) (int, error)) (int, error) {
	for len(c.plain) == 0 {
		if c.readError != nil {
			return 0, c.readError
		}
		record, err := c.recordLocked(from)
		if err != nil {
			return 0, err
		}
		// The bytes of the record are returned next.
		if c.plain, err = c.in.open(nil, record); err == nil && kind(record[0]) == kindEnd {
			err = io.EOF
		}
		c.readError = err
	}
	n := copy(p, c.plain)
	c.plain = c.plain[n:]
	c.held.Store(int64(len(c.plain) + c.w - c.r))
	return n, nil
}

// recordLocked returns the next record, which is valid until more is read.
//
// +checklocks:c.reading
func (c *Conn) recordLocked(from func([]byte) (int, error)) ([]byte, error) {
	for {
		need := headSize
		if c.w-c.r >= headSize {
			h, err := parseHead(c.buf[c.r:])
			if err != nil {
				c.readError = err
				return nil, err
			}
			if need = Overhead + h.n; c.w-c.r >= need {
				record := c.buf[c.r : c.r+need]
				c.r += need
				return record, nil
			}
		}
		if err := c.fillLocked(need, from); err != nil {
			return nil, err
		}
	}
}

// fillLocked reads more of a record; the first need bytes are known to belong to
// it.
//
// +checklocks:c.reading
func (c *Conn) fillLocked(need int, from func([]byte) (int, error)) error {
	have := c.w - c.r
	if c.r > 0 {
		// Few bytes remain: see below.
		copy(c.buf, c.buf[c.r:c.w])
		c.r, c.w = 0, have
	}
	if len(c.buf) < need || c.buf == nil {
		size := smallBuffer
		if need > smallBuffer {
			size = largeBuffer
		}
		grown := make([]byte, size)
		copy(grown, c.buf[:have])
		c.buf = grown
	}
	end := need
	switch {
	case !c.ahead:
	case need-have < smallBuffer/2:
		// Read many small records at once.
		end = min(max(need, smallBuffer), len(c.buf))
	default:
		// Read the rest of a long record, and the head of the next.
		end = min(need+headSize, len(c.buf))
	}
	n, err := from(c.buf[c.w:end])
	c.w += n
	c.held.Store(int64(c.w - c.r))
	switch {
	case n > 0:
		return nil
	case errors.Is(err, io.EOF):
		c.readError = fmt.Errorf("%w: %w", ErrCut, io.ErrUnexpectedEOF)
		return c.readError
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// Close sends an END record, if there is room for it now, and closes the
// underlying connection.
func (c *Conn) Close() error {
	c.tryEnd()
	err := c.Conn.Close()
	// Any write in progress has ended now.
	c.writing.Lock()
	if c.writeError == nil {
		c.writeError = errEnded
	}
	c.writing.Unlock()
	c.flushes.Wait()
	return err
}

// tryEnd sends an END record, if there is room for it, unless a write is in
// progress or bytes are left.
//
// +checklocksignore: the checker does not know TryLock.
func (c *Conn) tryEnd() {
	if !c.writing.TryLock() {
		return
	}
	defer c.writing.Unlock()
	if c.writeError != nil || len(c.left) > 0 || c.now == nil {
		return
	}
	c.growLocked(0)
	var err error
	if c.records, err = c.out.seal(c.records[:0], kindEnd, nil); err == nil {
		// Without it the peer considers the connection cut, which is then true.
		_, _ = c.now.Write(c.records)
	}
	c.writeError = errEnded
}
