package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// call is a request of ours that waits for its answer.
type call struct {
	id uint64
	// body has the length of the whole answer, of which got bytes have arrived;
	// it is nil before the first packet. Only the receiving goroutine uses it.
	body []byte
	got  int
	// answer and err are valid when done has a token.
	answer []byte
	err    error
	done   chan struct{}
}

// complete ends the call: it is called once.
func (c *call) complete(answer []byte, err error) {
	c.answer, c.err = answer, err
	c.done <- struct{}{}
}

// Call sends a request to a connected peer and waits for the answer, which
// belongs to the caller. With MaxPending requests pending it first waits for its
// turn, and with a busy peer it retries until the deadline.
//
// Errors: *Error; comm.ErrNotConnected, comm.ErrClosed; control.ErrDisconnected;
// ErrTooLong; the context's. After the context's error and
// control.ErrDisconnected it is unknown whether the peer has carried out the
// request.
func (e *Endpoint) Call(ctx context.Context, to wire.Rank, m Method, body []byte) ([]byte, error) {
	if len(body) > MaxQuestion {
		return nil, fmt.Errorf("request of %d bytes is longer than %d: %w", len(body), MaxQuestion, ErrTooLong)
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.opts.Timeout)
		defer cancel()
	}
	origin, err := e.comm.Origin(ctx, to)
	if err != nil {
		return nil, err
	}
	s, err := e.session(origin)
	if err != nil {
		return nil, err
	}
	slot := s.slots[e.opts.Lanes[m]]
	select {
	case slot <- struct{}{}:
	case <-s.ended:
		return nil, s.err()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s has not answered %d earlier requests: %w", to, cap(slot), ctx.Err())
	}
	defer func() { <-slot }()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		answer, err := s.ask(ctx, m, body)
		var failed *Error
		if err == nil || !errors.As(err, &failed) || failed.Code != CodeBusy || !rest(ctx, pause) {
			return answer, err
		}
	}
}

// The pauses before a busy peer is asked again.
const (
	shortestPause = time.Millisecond
	longestPause  = 64 * time.Millisecond
)

// rest waits, and reports whether the context lasted as long.
func rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask sends a request and waits for the answer.
func (s *session) ask(ctx context.Context, m Method, body []byte) ([]byte, error) {
	c, err := s.begin()
	if err != nil {
		return nil, err
	}
	var frame [headSize]byte
	head := packet{op: opQuestion, what: uint16(m), number: left(ctx), id: c.id}
	if err = s.e.comm.SendPacketIn(ctx, s.origin, Port, head.appendHead(frame[:0]), body); err != nil {
		s.forget(c)
		if errors.Is(err, control.ErrDisconnected) {
			s.e.discard(s)
		}
		return nil, err
	}
	s.e.stats.asked.Add(1)
	select {
	case <-c.done:
		return c.answer, c.err
	case <-ctx.Done():
	}
	if !s.forget(c) {
		// The answer arrived at the same time.
		<-c.done
		return c.answer, c.err
	}
	s.withdraw(c.id)
	return nil, fmt.Errorf("%s has not answered: %w", s.origin.Rank, ctx.Err())
}

// withdraw notifies the peer that a request no longer needs an answer. A peer
// that reads nothing notices by its own deadline.
func (s *session) withdraw(id uint64) {
	p := packet{op: opCancel, id: id}
	_ = s.post(p.encode())
}

// left returns the number of milliseconds until a context's deadline, at least
// one.
func left(ctx context.Context) uint32 {
	deadline, limited := ctx.Deadline()
	if !limited {
		return math.MaxUint32
	}
	ms := (time.Until(deadline) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(max(ms, 1), math.MaxUint32))
}

// begin registers a new request.
func (s *session) begin() (*call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return nil, s.cause
	}
	s.last++
	c := &call{id: s.last, done: make(chan struct{}, 1)}
	s.calls[c.id] = c
	return c, nil
}

// forget removes a request; it returns false if the request is complete.
func (s *session) forget(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := s.calls[c.id] == c
	delete(s.calls, c.id)
	return waits
}

// call finds the request that an answer belongs to: nil if it was given up.
func (s *session) call(id uint64) (*call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id > s.last {
		return nil, fmt.Errorf("%s answered request %d, which was not sent: %w", s.origin.Rank, id, ErrProtocol)
	}
	return s.calls[id], nil
}

// answered handles an answer, a further part of one, or an error.
func (s *session) answered(p *packet) error {
	c, err := s.call(p.id)
	if c == nil {
		return err
	}
	switch p.op {
	case opFailure:
		s.complete(c, &Error{Peer: s.origin.Rank, Code: Code(p.what), Text: wire.Printable(string(p.body), utf8.RuneError)})
		return nil
	case opAnswer:
		if c.body != nil {
			return s.disorder(p)
		}
		c.body = make([]byte, p.number)
	default:
		if int(p.number) != c.got || len(p.body) > len(c.body)-c.got {
			return s.disorder(p)
		}
	}
	c.got += copy(c.body[c.got:], p.body)
	if c.got == len(c.body) {
		s.complete(c, nil)
	}
	return nil
}

func (s *session) disorder(p *packet) error {
	return fmt.Errorf("%s answered request %d out of order: %w", s.origin.Rank, p.id, ErrProtocol)
}

// complete ends a request, unless it was given up.
func (s *session) complete(c *call, err error) {
	switch {
	case !s.forget(c):
	case err != nil:
		c.complete(nil, err)
	default:
		c.complete(c.body, nil)
	}
}

// Notify sends a peer a notice, which has no answer. It does not wait: if there
// is no room it returns false, and nothing was sent.
//
// Errors: ErrTooLong; comm.ErrNotConnected, comm.ErrClosed;
// control.ErrDisconnected.
func (e *Endpoint) Notify(to wire.Rank, m Method, body []byte) (bool, error) {
	if len(body) > MaxQuestion {
		return false, fmt.Errorf("notification of %d bytes is longer than %d: %w", len(body), MaxQuestion, ErrTooLong)
	}
	head := packet{op: opNotice, what: uint16(m)}
	sent, err := e.comm.TryPacket(to, Port, head.appendHead(nil), body)
	if sent {
		e.stats.told.Add(1)
	}
	return sent, err
}
