package rpc

import (
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// heartbeats is the number of heartbeats in Options.Silence. The session ends
// when all ticks but the first have passed without an answer, so a peer that
// stops is detected within Options.Silence, and a slow one has four fifths of
// that to answer.
const heartbeats = 5

// SilentError reports a peer that has stopped answering: neither a request nor a
// heartbeat. The session with it has ended.
type SilentError struct {
	Peer wire.Rank
	// Since is the time of its last answer.
	Since time.Time
}

// Error names the peer and the time.
func (e *SilentError) Error() string {
	return fmt.Sprintf("%s: no answer since %s", e.Peer, e.Since.UTC().Format(time.RFC3339))
}

// alive records that the peer has answered.
func (s *session) alive() { s.answeredAt.Store(time.Now().UnixNano()) }

// startHeartbeat starts the heartbeats of a session.
func (s *session) startHeartbeat() {
	s.alive()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.e.opts.Silence/heartbeats, s.heartbeat)
}

// heartbeat sends a ping, and ends the session if the last ones have not been
// answered. It counts heartbeats instead of comparing clocks: otherwise a process
// that was stopped itself would find all its peers silent.
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
	// If there is no room, the peer does not read, and this heartbeat is missed.
	_, _ = s.e.comm.TryPacketIn(s.origin, Port, (&packet{op: opPing}).encode())
}
