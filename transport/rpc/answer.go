package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// question is a request of a peer.
type question struct {
	s       *session
	id      uint64
	method  Method
	handler Handler
	body    []byte
	ctx     context.Context //nolint:containedctx // it is the context of the request, until its answer
	cancel  context.CancelFunc
	// dropped is set when the caller no longer wants the answer.
	dropped atomic.Bool
}

// peer is a calling rank, over all sessions with it: a peer that reconnects
// repeatedly gets no more requests served at once than one that stays.
type peer struct {
	limit int
	// sessions counts those that have not ended; it is guarded by Endpoint.mu.
	sessions int

	mu sync.Mutex
	// +checklocks:mu
	lanes [Lanes]lane
}

// lane holds the requests of one lane.
type lane struct {
	running int
	waiting []*question
}

// admit starts to answer a request, or lets it wait for a place. It returns false if
// too many wait: those whose deadline has passed are dropped before, since their
// answers are no longer needed.
func (p *peer) admit(q *question, in Lane) bool {
	p.mu.Lock()
	l := &p.lanes[in]
	full := len(l.waiting) >= p.limit
	p.mu.Unlock()
	if full {
		p.drop(func(q *question) bool { return q.ctx.Err() != nil })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.running < p.limit:
		l.running++
		go p.work(q, in)
	case len(l.waiting) < p.limit:
		l.waiting = append(l.waiting, q)
	default:
		return false
	}
	return true
}

// work answers a request, and then those that wait for its place.
func (p *peer) work(q *question, in Lane) {
	for q != nil {
		q.answer()
		q.finish()
		q = p.next(in)
	}
}

// next removes the request that has waited longest; with nil, the place is free
// again.
func (p *peer) next(in Lane) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.lanes[in]
	if len(l.waiting) == 0 {
		l.running--
		return nil
	}
	q := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	return q
}

// drop removes waiting requests.
func (p *peer) drop(these func(q *question) bool) {
	var all []*question
	p.mu.Lock()
	for i := range p.lanes {
		l := &p.lanes[i]
		l.waiting = slices.DeleteFunc(l.waiting, func(q *question) bool {
			gone := these(q)
			if gone {
				all = append(all, q)
			}
			return gone
		})
	}
	p.mu.Unlock()
	for _, q := range all {
		q.finish()
	}
}

// question handles a request of the peer.
func (s *session) question(p *packet) error {
	s.heard.Store(true)
	m := Method(p.what)
	h := s.e.opts.Handlers[m]
	if h == nil {
		s.e.stats.refused.Add(1)
		return s.post(failure(p.id, CodeNoMethod, fmt.Sprintf("unknown method %d", m)))
	}
	q := &question{s: s, id: p.id, method: m, handler: h, body: bytes.Clone(p.body)}
	q.ctx, q.cancel = context.WithTimeout(s.ctx, time.Duration(p.number)*time.Millisecond)
	if taken, err := s.take(q); !taken {
		q.cancel()
		return err
	}
	if !s.peer.admit(q, s.e.opts.Lanes[m]) {
		q.finish()
		s.e.stats.refused.Add(1)
		return s.post(failure(q.id, CodeBusy, "too many requests from one node"))
	}
	return nil
}

// take registers a request; false without an error means that the session has
// ended.
func (s *session) take(q *question) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions[q.id] != nil {
		return false, fmt.Errorf("%s reused the ID of pending request %d: %w", s.origin.Rank, q.id, ErrProtocol)
	}
	if !s.enterLocked() {
		return false, nil
	}
	s.questions[q.id] = q
	return true, nil
}

// finish ends a registered request.
func (q *question) finish() {
	q.s.mu.Lock()
	delete(q.s.questions, q.id)
	q.s.mu.Unlock()
	q.cancel()
	q.s.serving.Done()
}

// cancelled ends a request whose answer the peer no longer wants.
func (s *session) cancelled(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.questions[id]; q != nil {
		q.dropped.Store(true)
		q.cancel()
	}
}

// notice handles a notice of the peer.
func (s *session) notice(p *packet) {
	s.heard.Store(true)
	fn := s.e.opts.Notices[Method(p.what)]
	s.mu.Lock()
	entered := fn != nil && s.enterLocked()
	s.mu.Unlock()
	if entered {
		defer s.serving.Done()
		defer func() {
			if v := recover(); v != nil {
				s.e.panicked(Method(p.what), v)
			}
		}()
		fn(s.caller(), bytes.Clone(p.body))
	}
}

// answer runs the handler, and sends its result.
func (q *question) answer() {
	answer, err := q.handle()
	if q.dropped.Load() || q.s.ctx.Err() != nil {
		return
	}
	if err == nil && len(answer) > MaxAnswer {
		err = fmt.Errorf("answer of %d bytes is longer than %d: %w", len(answer), MaxAnswer, ErrTooLong)
	}
	if err == nil {
		err = q.send(answer)
	}
	if err != nil {
		// A peer that reads nothing notices by its own deadline.
		_ = q.s.post(failure(q.id, q.code(err), err.Error()))
	}
}

// handle calls the handler, unless it is too late. Input from a peer must not end
// the process: a handler that panics fails with errPanic, and the session continues.
func (q *question) handle() (answer []byte, err error) {
	if err = q.ctx.Err(); err != nil {
		return nil, err
	}
	q.s.e.stats.answered.Add(1)
	defer func() {
		q.body = nil
		if p := recover(); p != nil {
			q.s.e.panicked(q.method, p)
			answer, err = nil, errPanic
		}
	}()
	return q.handler(q.ctx, q.s.caller(), q.body)
}

// errPanic is the only error that a peer sees of a panic.
var errPanic = errors.New("rpc: the handler panicked")

// panicked logs a handler's panic.
func (e *Endpoint) panicked(m Method, p any) {
	e.log.Error("handler panicked", zap.Uint16("method", uint16(m)), zap.Any("panic", p), zap.Stack("stack"))
}

// code returns the code of an error for the peer.
func (q *question) code(err error) Code {
	switch {
	case errors.Is(err, context.Canceled) && q.s.e.isClosed():
		return CodeClosing
	case q.ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return CodeDeadline
	default:
		return q.s.e.opts.Coder(err)
	}
}

// send sends an answer in as many packets as it takes. It fails if the peer did
// not read them in time.
func (q *question) send(answer []byte) error {
	var frame [headSize]byte
	head := packet{op: opAnswer, number: uint32(len(answer)), id: q.id}
	for off := 0; ; {
		part := answer[off:min(len(answer), off+maxPart)]
		if err := q.sendOne(head.appendHead(frame[:0]), part); err != nil {
			return err
		}
		if off += len(part); off == len(answer) {
			return nil
		}
		head.op, head.number = opMore, uint32(off)
	}
}

// sendOne sends a packet if there is room, even after the deadline, and otherwise
// waits for room until then.
func (q *question) sendOne(parts ...[]byte) error {
	c := q.s.e.comm
	if sent, err := c.TryPacketIn(q.s.origin, Port, parts...); sent || err != nil {
		return err
	}
	return c.SendPacketIn(q.ctx, q.s.origin, Port, parts...)
}
