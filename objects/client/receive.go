package client

import (
	"bufio"
	"errors"
	"io"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// receiver reads frames. A frame whose reading was interrupted is continued.
type receiver struct {
	in *bufio.Reader
	// of returns the answer to a call, nil for none; it is nil before there are calls.
	of func(id uint64) *answer
	// channel passes descriptors.
	channel *frames.Channel
	// head is that of the frame that p is of; got bytes of it have arrived.
	head frames.Header
	p    part
	got  int
	half bool
}

// next reads one frame, whose body becomes the caller's.
func (r *receiver) next() (frames.Header, part, error) {
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
		r.p, r.got, r.half = r.partFor(r.head), 0, true
	}
	for r.got < int(r.head.Size) {
		to := r.p.data
		if r.got < len(r.p.body) {
			to = r.p.body[r.got:]
		} else {
			to = to[r.got-len(r.p.body):]
			if len(to) == sessionBuffer { // it would be taken for the buffer, see frames.LongestPlain
				to = to[:len(to)-1]
			}
		}
		n, err := r.in.Read(to)
		if r.got += n; err != nil {
			return frames.Header{}, part{}, err
		}
	}
	p := r.p
	if r.head.Descriptors > 0 {
		p.files, p.lost = r.channel.Receive(r.head.ID, int(r.head.Descriptors), nil, 0)
	}
	r.p, r.half = part{}, false
	return r.head, p, nil
}

// partFor returns the memory for a frame: that of the answer that it belongs to.
func (r *receiver) partFor(h frames.Header) part {
	p, size, fixed := part{kind: h.Kind}, int(h.Size), int(h.Size)
	if h.Kind == frames.KindFileAnswer {
		fixed = min(frames.FileAnswerFixed, size)
	}
	if r.of != nil {
		if a := r.of(h.ID); a != nil {
			p.body, p.data = a.room(h.ID, fixed, size)
			return p
		}
	}
	p.body = make([]byte, size)
	return p
}

const (
	// keyPatience is the time for each key of a call by which a reader polls longer for the answer, and
	// mostPatience bounds it.
	keyPatience  = 3 * time.Microsecond
	mostPatience = time.Millisecond
)

// readFor reads frames, and passes them to the answers that they belong to, until there is one
// for an answer, or the session has ended. The caller has taken the role, which this returns, unless it
// is needed for the search for the next daemon.
func (s *Session) readFor(a *answer) {
	s.link.Load().Expect(min(time.Duration(len(a.keys))*keyPatience, mostPatience))
	for !a.ready() {
		h, p, err := s.in.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // it was interrupted, perhaps for another answer
		}
		if err != nil && s.depart(err) {
			return
		}
		if err != nil || h.Kind == frames.KindEnded {
			s.over()
			break
		}
		if of := s.answerTo(h.ID); of != nil {
			of.add(h.ID, p)
		} else {
			adminapi.CloseAll(p.files)
		}
	}
	s.role <- struct{}{}
}

// answerTo returns the answer to a call in progress; nil for none.
func (s *Session) answerTo(id uint64) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[id]
}

// interrupt makes the goroutine that reads look at its answer.
func (s *Session) interrupt() { s.link.Load().Interrupt() }

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
