package fabric

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/pages"
)

const (
	// zeroCopyFrom is the smallest body that is sent without copying, in bytes: below it a copy
	// is faster.
	zeroCopyFrom = 32 << 10
	// zeroCopyPiece is the most bytes that enter the pipe at a time.
	zeroCopyPiece = 128 << 10
)

// zeroCopier sends memory without copying, by passing its pages through a pipe. The bytes that
// have entered the pipe and are not sent yet are the beginning of the next body, as
// Link.TrySendZeroCopy requires.
type zeroCopier struct {
	pool *pages.Pool
	pipe *pages.Pipe
	// never reports that pages can't be passed: no pipe is available, or the socket does
	// not support it.
	never bool
}

func (l *zeroCopier) close() {
	if l.pipe != nil {
		l.pool.Put(l.pipe)
		l.pipe = nil
	}
}

// open gets a pipe from the pool, and reports whether there is one.
func (l *zeroCopier) open(pool *pages.Pool) bool {
	if l.pipe == nil && !l.never {
		pipe, ok := pool.Get()
		l.never = !ok
		if ok {
			l.pool, l.pipe = pool, pipe
		}
	}
	return l.pipe != nil
}

// sendZeroCopy sends as much as there is room for: head by copying, body by passing its pages.
func (s *socket) sendZeroCopy(pool *pages.Pool, head, body []byte) (int, error) {
	l := &s.zeroCopier
	begun := l.pipe != nil && l.pipe.Held() > 0
	if !begun && (len(body) < zeroCopyFrom || !l.open(pool)) {
		return s.send(head, body)
	}
	if s.failed != nil {
		return 0, s.failed
	}
	if len(head) > 0 {
		n, err := sendMore(s.fd, head)
		switch {
		case err != nil && !transient(err):
			return 0, err
		case n < len(head):
			return n, nil
		}
	}
	n, err := s.sendBodyZeroCopy(body)
	if err != nil && len(head) == 0 {
		return n, err
	}
	return len(head) + n, nil // the next call gets the error again
}

// sendBodyZeroCopy sends some of body by passing its pages.
func (s *socket) sendBodyZeroCopy(body []byte) (int, error) {
	l := &s.zeroCopier
	if l.pipe.Held() == 0 {
		if err := l.pipe.FromMemory(body[:min(len(body), zeroCopyPiece)]); err != nil {
			// The pages of a device's memory can't be passed.
			n, serr := s.send(nil, body)
			if serr != nil {
				return n, fmt.Errorf("%w (%w)", serr, err)
			}
			return n, nil
		}
	}
	n, err := l.pipe.ToSocket(s.fd, min(len(body), l.pipe.Held()))
	if err == nil || transient(err) {
		return n, nil
	}
	if errors.Is(err, unix.EINVAL) && n == 0 {
		// This socket does not support it. The bytes in the pipe are still in body: copy
		// them.
		l.close()
		l.never = true
		return s.send(nil, body)
	}
	return 0, err
}
