package tcp

import (
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/internal/spin"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The reader's sizes, in bytes.
const (
	// readAhead is the number of bytes read with a header: many small frames at
	// once, and little to copy of a large one.
	readAhead = 8 << 10
	// direct is the number of missing bytes from which they are read into their
	// place instead of the read-ahead buffer.
	direct = 2 << 10
)

// reader reads frames from a stream.
type reader struct {
	conn net.Conn
	// from is the same connection; a waiter for an answer makes it spin.
	from *spin.Reader
	// moved counts the reads, for the watch.
	moved *atomic.Uint64
	buf   [readAhead]byte
	r, w  int
}

// fill reads at least one more byte into the read-ahead buffer, which has room.
func (r *reader) fill() error {
	if r.r == r.w {
		r.r, r.w = 0, 0
	}
	if r.w == len(r.buf) {
		copy(r.buf[:], r.buf[r.r:r.w])
		r.r, r.w = 0, r.w-r.r
	}
	n, err := r.from.Read(r.buf[r.w:])
	r.w += n
	if n > 0 {
		r.moved.Add(1)
		return nil
	}
	return err
}

// header returns the bytes of the next header, valid until the next call.
func (r *reader) header() ([]byte, error) {
	for r.w-r.r < wire.DataHeaderSize {
		if err := r.fill(); err != nil {
			if r.w != r.r {
				err = unexpected(err)
			}
			return nil, err
		}
	}
	p := r.buf[r.r : r.r+wire.DataHeaderSize]
	r.r += wire.DataHeaderSize
	return p, nil
}

// payload reads len(p) bytes.
func (r *reader) payload(p []byte) error {
	n := copy(p, r.buf[r.r:r.w])
	r.r += n
	for p = p[n:]; len(p) > 0; p = p[n:] {
		var err error
		if len(p) >= direct {
			n, err = r.conn.Read(p)
			r.moved.Add(1)
		} else {
			err = r.fill()
			n = copy(p, r.buf[r.r:r.w])
			r.r += n
		}
		if n == 0 && err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// toPipe reads up to n bytes into an empty pipe, and returns their number: at
// least one, as many as have arrived.
func (r *reader) toPipe(from *pages.Socket, pipe *pages.Pipe, n devices.Size) (devices.Size, error) {
	have := min(int(n), r.w-r.r)
	if have > 0 {
		if err := pipe.Fill(r.buf[r.r : r.r+have]); err != nil {
			return 0, err
		}
		r.r += have
	}
	if have == int(n) {
		return n, nil
	}
	k, err := from.Receive(pipe, int(n)-have)
	if err != nil {
		return 0, unexpected(err)
	}
	r.moved.Add(1)
	return devices.Size(have + k), nil
}

// discard reads n bytes and drops them.
func (r *reader) discard(n int) error {
	for n > 0 {
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return unexpected(err)
			}
		}
		k := min(n, r.w-r.r)
		r.r += k
		n -= k
	}
	return nil
}

// unexpected maps the end of the stream inside a frame to io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
