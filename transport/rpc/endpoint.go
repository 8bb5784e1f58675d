package rpc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// goodbye bounds the time that Close waits for peers to read their last answers.
const goodbye = time.Second

// Endpoint sends and serves requests. Its methods may be called from any
// goroutine.
type Endpoint struct {
	comm carrier
	opts Options
	log  *zap.Logger
	// running counts the tasks that Close waits for.
	running sync.WaitGroup
	stats   counters

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// sessions holds those in which something was sent or received.
	// +checklocks:mu
	sessions map[comm.Origin]*session
	// peers holds the callers of the sessions.
	// +checklocks:mu
	peers map[wire.Rank]*peer
}

type counters struct{ asked, told, answered, refused atomic.Uint64 }

// New occupies the communicator's port: call it before Listen and Connect. Close
// frees it.
//
// Errors: comm.ErrPort, comm.ErrClosed.
func New(o Options) (*Endpoint, error) { return newEndpoint(o, o.Comm) }

func newEndpoint(o Options, c carrier) (*Endpoint, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Endpoint{
		comm: c, opts: o, log: o.Logger.Named("rpc"), sessions: map[comm.Origin]*session{}, peers: map[wire.Rank]*peer{},
	}
	if err := c.Handle(Port, (*port)(e)); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	return e, nil
}

// Stats returns a snapshot of the counters.
func (e *Endpoint) Stats() Stats {
	s := &e.stats
	return Stats{Asked: s.asked.Load(), Told: s.told.Load(), Answered: s.answered.Load(), Refused: s.refused.Load()}
}

// Close fails the pending requests and waits for the handlers, whose contexts
// end; their callers receive an answer. Closing twice is harmless.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	already := e.closed
	e.closed = true
	all := make([]*session, 0, len(e.sessions))
	for origin, s := range e.sessions {
		all = append(all, s)
		e.running.Add(1)
		delete(e.sessions, origin)
	}
	e.mu.Unlock()
	if !already {
		e.comm.Unhandle(Port)
	}
	// Handlers send their last answers, to peers that still read.
	enough := time.AfterFunc(goodbye, func() { cancelAll(all) })
	for _, s := range all {
		for _, id := range s.fail(errClosed()) {
			s.withdraw(id)
		}
		s.interrupt()
		go e.bury(s)
	}
	e.running.Wait()
	enough.Stop()
	cancelAll(all)
	return nil
}

func cancelAll(sessions []*session) {
	for _, s := range sessions {
		s.cancel()
	}
}

func errClosed() error { return fmt.Errorf("rpc endpoint: %w", comm.ErrClosed) }

// track counts a task that Close waits for; false means that the endpoint is
// closed.
func (e *Endpoint) track() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.running.Add(1)
	return true
}

func (e *Endpoint) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// session returns a session, and makes it if necessary.
func (e *Endpoint) session(origin comm.Origin) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed()
	}
	s := e.sessions[origin]
	if s == nil {
		p := e.peers[origin.Rank]
		if p == nil {
			p = &peer{limit: e.opts.MaxConcurrent}
			e.peers[origin.Rank] = p
		}
		p.sessions++
		s = newSession(e, origin, p)
		e.sessions[origin] = s
	}
	return s, nil
}

// discard removes a session that had ended before it was made here: its end was
// reported already, and is not reported again.
func (e *Endpoint) discard(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sessions[s.origin] == s && s.unused() {
		delete(e.sessions, s.origin)
		s.cancel()
		e.leaveLocked(s)
	}
}

// leaveLocked removes a session from its peer.
//
// +checklocks:e.mu
func (e *Endpoint) leaveLocked(s *session) {
	if s.peer.sessions--; s.peer.sessions == 0 {
		delete(e.peers, s.origin.Rank)
	}
}

// bury waits until nothing runs for a session that has ended, and reports the
// end.
func (e *Endpoint) bury(s *session) {
	defer e.running.Done()
	s.peer.drop(func(q *question) bool { return q.s == s })
	s.serving.Wait()
	if s.heard.Load() {
		e.opts.OnEnd(s.caller())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLocked(s)
}

// port is the endpoint as the handler of its port.
type port Endpoint

// Packet handles a packet of a peer.
func (h *port) Packet(from comm.Origin, b []byte) error {
	e := (*Endpoint)(h)
	err := e.packet(from, b)
	if err != nil {
		e.log.Warn("peer violates the protocol", zap.Uint32("rank", uint32(from.Rank)), zap.Error(err))
	}
	return err
}

func (e *Endpoint) packet(from comm.Origin, b []byte) error {
	p, err := parse(b)
	if err != nil {
		return err
	}
	s, err := e.session(from)
	if err != nil {
		return nil //nolint:nilerr // the endpoint is closed, which is not the peer's fault
	}
	switch p.op {
	case opQuestion:
		return s.question(&p)
	case opCancel:
		s.cancelled(p.id)
		return nil
	case opNotice:
		s.notice(&p)
		return nil
	case opPing:
		return s.post((&packet{op: opPong}).encode())
	case opPong:
		s.alive()
		return nil
	default:
		s.alive()
		return s.answered(&p)
	}
}

// Ended fails our requests in a session, and ends those of the peer.
func (h *port) Ended(from comm.Origin, cause error) {
	e := (*Endpoint)(h)
	e.mu.Lock()
	s := e.sessions[from]
	delete(e.sessions, from)
	if s != nil {
		e.running.Add(1)
	}
	e.mu.Unlock()
	if s == nil {
		return
	}
	s.fail(cause)
	s.cancel()
	go e.bury(s)
}
