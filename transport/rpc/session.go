package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/transport/comm"
)

// maxPosted is the maximum number of small packets that wait for a peer: a peer
// with more sends requests and does not read.
const maxPosted = 4 * MaxConcurrent

// session holds the requests and answers of one session.
type session struct {
	e      *Endpoint
	origin comm.Origin
	peer   *peer
	// ctx ends with the session; sends wait no longer than that.
	ctx    context.Context //nolint:containedctx // it is the lifetime of the session
	cancel context.CancelFunc
	// slots are occupied by our requests, for each lane.
	slots [Lanes]chan struct{}
	// ended is closed with the session.
	ended chan struct{}
	// serving counts the peer's unfinished requests and notices.
	serving sync.WaitGroup
	// heard is set when the peer has sent a request or a notice.
	heard atomic.Bool
	// answeredAt is the time of the peer's last answer, to a request or a
	// heartbeat, in nanoseconds since 1970.
	answeredAt atomic.Int64

	mu sync.Mutex
	// last is the number of our latest request.
	// +checklocks:mu
	last uint64
	// calls holds our requests that wait for an answer.
	// +checklocks:mu
	calls map[uint64]*call
	// questions holds the peer's unfinished requests.
	// +checklocks:mu
	questions map[uint64]*question
	// +checklocks:mu
	cause error
	// timer fires for the next heartbeat.
	// +checklocks:mu
	timer *time.Timer
	// seenAt is answeredAt at the last heartbeat, and missed counts the
	// heartbeats since it changed.
	// +checklocks:mu
	seenAt int64
	// +checklocks:mu
	missed int

	postMu sync.Mutex
	// posted holds small packets that found no room; while posting, a goroutine
	// sends them.
	// +checklocks:postMu
	posted [][]byte
	// +checklocks:postMu
	posting bool
}

func newSession(e *Endpoint, origin comm.Origin, p *peer) *session {
	s := &session{
		e: e, origin: origin, peer: p, ended: make(chan struct{}),
		calls: map[uint64]*call{}, questions: map[uint64]*question{},
	}
	for i := range s.slots {
		s.slots[i] = make(chan struct{}, e.opts.MaxPending)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.startHeartbeat()
	return s
}

func (s *session) caller() Caller { return Caller{Rank: s.origin.Rank, Session: s.origin} }

// fail ends our requests with an error, and returns their numbers.
func (s *session) fail(cause error) (ids []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cause = cause
	s.timer.Stop()
	close(s.ended)
	for id, c := range s.calls {
		delete(s.calls, id)
		c.complete(nil, cause)
		ids = append(ids, id)
	}
	return ids
}

// enterLocked counts a request or notice of the peer that is being served, until
// serving is done; false means that the session has ended.
//
// +checklocks:s.mu
func (s *session) enterLocked() bool {
	if s.cause != nil {
		return false
	}
	s.serving.Add(1)
	return true
}

// interrupt cancels the contexts of the running handlers. Their answers are still
// sent.
func (s *session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.questions {
		q.cancel()
	}
}

// err returns the cause of the session's end.
func (s *session) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// unused reports whether nothing was received in the session and no request waits
// in it.
func (s *session) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.heard.Load() && len(s.calls) == 0
}

// post sends a small packet without waiting, or leaves it to a goroutine. A
// packet that can't be sent is lost: its session has ended, and the peer knows
// that.
//
// Errors: ErrProtocol for a peer that does not read.
func (s *session) post(p []byte) error {
	s.postMu.Lock()
	defer s.postMu.Unlock()
	if !s.posting {
		sent, err := s.e.comm.TryPacketIn(s.origin, Port, p)
		if sent || err != nil || !s.e.track() {
			return nil //nolint:nilerr // the session has ended, which is reported elsewhere
		}
		s.posting = true
		go s.deliver()
	}
	if len(s.posted) >= maxPosted {
		return fmt.Errorf("%s leaves %d answers unread: %w", s.origin.Rank, len(s.posted), ErrProtocol)
	}
	s.posted = append(s.posted, p)
	return nil
}

// deliver sends the posted packets, until there are none.
func (s *session) deliver() {
	defer s.e.running.Done()
	for {
		s.postMu.Lock()
		all := s.posted
		s.posted = nil
		s.posting = len(all) > 0
		s.postMu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, p := range all {
			if s.e.comm.SendPacketIn(s.ctx, s.origin, Port, p) != nil {
				break
			}
		}
	}
}
