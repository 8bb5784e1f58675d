package rpc

import (
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// heartbeats is the number of them that are sent while a peer may be silent: the
// session ends when all but the first tick have passed without an answer, so a peer
// that stops is noticed within Options.Silence, and one that is slow has four fifths
// of that to answer.
const heartbeats = 5

// SilentError reports a peer that has stopped answering: neither a question nor
// a heartbeat. The session with it has ended.
type SilentError struct {
	Peer wire.Rank
	// Since is the time of its last answer.
	Since time.Time
}

// Error names the peer and the time.
func (e *SilentError) Error() string {
	return fmt.Sprintf("%s: no answer since %s", e.Peer, e.Since.UTC().Format(time.RFC3339))
}

// alive notes that the peer has answered something.
func (s *session) alive() { s.answeredAt.Store(time.Now().UnixNano()) }

// startHeartbeat begins the heartbeats of a session.
func (s *session) startHeartbeat() {
	s.alive()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.e.opts.Silence/heartbeats, s.heartbeat)
}

// heartbeat asks for a sign of life, and ends the session when the last ones have not
// been answered. It counts heartbeats and does not compare clocks: a process that was
// stopped itself would find all its peers silent.
func (s *session) heartbeat() {
	at := s.answeredAt.Load()
	s.mu.Lock()
	if s.cause != nil || s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.missed++
	if at != s.seenAt {
		s.seenAt, s.missed = at, 0
	}
	silent := s.missed >= heartbeats-1
	if !silent {
		s.timer.Reset(s.e.opts.Silence / heartbeats)
	}
	s.mu.Unlock()
	if silent {
		s.e.comm.End(s.origin, &SilentError{Peer: s.origin.Rank, Since: time.Unix(0, at)})
		return
	}
	// Where there is no room the peer does not read, and this one is missed.
	_, _ = s.e.comm.TryPacketIn(s.origin, Port, (&packet{op: opPing}).encode())
}
