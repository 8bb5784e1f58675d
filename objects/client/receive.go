package client

import (
	"bufio"
	"errors"
	"io"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/objects/frames"
)

// receiver reads frames. A frame whose reading was interrupted is continued.
type receiver struct {
	in *bufio.Reader
	// head is that of the frame that body is of; got bytes of it have arrived.
	head frames.Header
	body []byte
	got  int
	half bool
}

// next reads one frame, whose body becomes the caller's.
func (r *receiver) next() (frames.Header, []byte, error) {
	if !r.half {
		head, err := r.in.Peek(frames.HeaderSize)
		if err != nil {
			return frames.Header{}, nil, err
		}
		if r.head, err = frames.ParseHeader(head); err == nil {
			_, err = r.in.Discard(frames.HeaderSize)
		}
		if err != nil {
			return frames.Header{}, nil, err
		}
		r.body, r.got, r.half = make([]byte, r.head.Size), 0, true
	}
	for r.got < len(r.body) {
		n, err := r.in.Read(r.body[r.got:])
		if r.got += n; err != nil {
			return frames.Header{}, nil, err
		}
	}
	r.half = false
	return r.head, r.body, nil
}

// readFor reads frames, and passes them to the answers that they belong to, until there is one
// for an answer, or the session has ended. The caller has taken the role, which this returns.
func (s *Session) readFor(a *answer) {
	defer func() { s.role <- struct{}{} }()
	for !a.ready() {
		h, body, err := s.in.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// It was interrupted, perhaps for another answer.
			_ = s.conn.SetReadDeadline(time.Time{}) // a closed connection fails the next read
			continue
		}
		if err != nil || h.Kind == frames.KindEnded {
			s.over()
			return
		}
		s.mu.Lock()
		of := s.answers[h.ID]
		s.mu.Unlock()
		if of != nil {
			of.add(h.Kind, body)
		}
	}
}

// interrupt makes the goroutine that reads look at its answer.
func (s *Session) interrupt() {
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection needs none
}

// over records that the session has ended.
func (s *Session) over() {
	s.mu.Lock()
	left := s.answers
	s.answers = nil
	select {
	case <-s.gone:
	default:
		close(s.gone) // the caller has the role
	}
	s.mu.Unlock()
	for _, a := range left {
		a.fail(io.ErrUnexpectedEOF)
	}
}
