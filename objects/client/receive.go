package client

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/hmcfs/hmcfs/objects/frames"
)

// receiver reads frames. A frame whose reading was interrupted is continued.
type receiver struct {
	in *bufio.Reader
	// head is that of the frame that p is of; got bytes of it have arrived.
	head frames.Header
	p    part
	got  int
	half bool
}

// next reads one frame, whose body becomes the caller's. place returns the memory for the data of
// an answer to a call on files, or nil.
func (r *receiver) next(place func(id uint64) []byte) (frames.Header, part, error) {
	if !r.half {
		head, err := r.in.Peek(frames.HeaderSize)
		if err != nil {
			return frames.Header{}, part{}, err
		}
		if r.head, err = frames.ParseHeader(head); err == nil {
			_, err = r.in.Discard(frames.HeaderSize)
		}
		if err != nil {
			return frames.Header{}, part{}, err
		}
		r.p, r.got, r.half = partFor(r.head, place), 0, true
	}
	for r.got < int(r.head.Size) {
		to := r.p.data
		if r.got < len(r.p.body) {
			to = r.p.body[r.got:]
		} else {
			to = to[r.got-len(r.p.body):]
		}
		n, err := r.in.Read(to)
		if r.got += n; err != nil {
			return frames.Header{}, part{}, err
		}
	}
	p := r.p
	r.p, r.half = part{}, false
	return r.head, p, nil
}

// partFor returns the memory for a frame.
func partFor(h frames.Header, place func(id uint64) []byte) part {
	p, size := part{kind: h.Kind}, int(h.Size)
	if place != nil && h.Kind == frames.KindFileAnswer && size > frames.FileAnswerFixed {
		if to := place(h.ID); size-frames.FileAnswerFixed <= len(to) {
			p.data = to[:size-frames.FileAnswerFixed]
			size = frames.FileAnswerFixed
		}
	}
	p.body = make([]byte, size)
	return p
}

// readFor reads frames, and passes them to the answers that they belong to, until there is one
// for an answer, or the session has ended. The caller has taken the role, which this returns.
func (s *Session) readFor(a *answer) {
	defer func() { s.role <- struct{}{} }()
	for !a.ready() {
		h, p, err := s.in.next(s.place)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // it was interrupted, perhaps for another answer
		}
		if err != nil || h.Kind == frames.KindEnded {
			s.over()
			return
		}
		s.mu.Lock()
		of := s.answers[h.ID]
		s.mu.Unlock()
		if of != nil {
			of.add(p)
		}
	}
}

// place returns the memory for the data of the answer to a call.
func (s *Session) place(id uint64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.answers[id]; a != nil {
		return a.into
	}
	return nil
}

// interrupt makes the goroutine that reads look at its answer.
func (s *Session) interrupt() { s.conn.Interrupt() }

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
