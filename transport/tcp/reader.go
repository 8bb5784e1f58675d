package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/internal/spin"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The reader's sizes, in bytes.
const (
	// readAhead is what is read with a header: many small frames at once, and
	// little to copy of a large one.
	readAhead = 8 << 10
	// direct is how much must be missing to be read into its place and not
	// into the read-ahead.
	direct = 2 << 10
)

// reader reads frames from a stream.
type reader struct {
	conn net.Conn
	// from is the connection too; who waits for an answer makes it spin.
	from *spin.Reader
	// moved counts the reads, for whoever watches that something happens.
	moved *atomic.Uint64
	buf   [readAhead]byte
	r, w  int
}

// fill reads at least one byte more into the read-ahead, which has room.
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

// header returns the bytes of the next header, good until the next call.
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

// toFile reads n bytes to a file, through a pipe. failure is the file's: the
// bytes were read all the same.
func (r *reader) toFile(from *pages.Socket, pipe *pages.Pipe, f *os.File, off int64, n int) (failure, err error) {
	have := min(n, r.w-r.r)
	if _, failure = f.WriteAt(r.buf[r.r:r.r+have], off); failure != nil {
		return failure, r.discard(n)
	}
	r.r += have
	for n, off = n-have, off+int64(have); n > 0; {
		k, err := from.Receive(pipe, n)
		if err != nil {
			return nil, unexpected(err)
		}
		r.moved.Add(1)
		if failure = pipe.ToFile(f, off); failure != nil {
			return failure, r.discard(n - k)
		}
		n, off = n-k, off+int64(k)
	}
	return nil, nil
}

// discard reads n bytes of no use.
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

// unexpected is the end of a stream inside a frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
