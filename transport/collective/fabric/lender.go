package fabric

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/pages"
)

const (
	// lendFrom is from how many bytes on pages are lent: to copy fewer is faster.
	lendFrom = 32 << 10
	// lendPiece is the number of bytes that are lent at a time.
	lendPiece = 128 << 10
)

// lender sends memory by its pages. What it has taken and not sent is the begin of
// what comes next, as Link.TryLend says.
type lender struct {
	pool *pages.Pool
	pipe *pages.Pipe
	// never says that it can't be: there is no pipe to be had, or the socket takes
	// none.
	never bool
}

func (l *lender) close() {
	if l.pipe != nil {
		l.pool.Put(l.pipe)
		l.pipe = nil
	}
}

// open takes a pipe.
func (l *lender) open(pool *pages.Pool) bool {
	if l.pipe == nil && !l.never {
		pipe, ok := pool.Get()
		l.never = !ok
		if ok {
			l.pool, l.pipe = pool, pipe
		}
	}
	return l.pipe != nil
}

// lend sends what there is room for: head by a copy, body by its pages.
func (s *socket) lend(pool *pages.Pool, head, body []byte) (int, error) {
	l := &s.lender
	begun := l.pipe != nil && l.pipe.Held() > 0
	if !begun && (len(body) < lendFrom || !l.open(pool)) {
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
	n, err := s.lendBody(body)
	if err != nil && len(head) == 0 {
		return n, err
	}
	return len(head) + n, nil // the error is met again
}

// lendBody sends some of what is to be lent.
func (s *socket) lendBody(body []byte) (int, error) {
	l := &s.lender
	if l.pipe.Held() == 0 {
		if err := l.pipe.FromMemory(body[:min(len(body), lendPiece)]); err != nil {
			// A device's memory has no pages that could be lent.
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
		// This socket can't: what was taken is copied, as it is still there.
		l.close()
		l.never = true
		return s.send(nil, body)
	}
	return 0, err
}
