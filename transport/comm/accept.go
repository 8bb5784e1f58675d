package comm

import (
	"errors"
	"time"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// acceptor adapts the communicator to a listener's handler.
type acceptor Communicator

// Admit decides whether to accept a connection of an authenticated peer.
func (d *acceptor) Admit(h wire.Hello) (wire.Session, *wire.Refusal) {
	c := (*Communicator)(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, &wire.Refusal{Code: wire.RefusedClosing, Reason: "shutting down"}
	}
	s := c.sessions[h.From]
	if h.Role != wire.RoleControl {
		if s == nil || h.Role == wire.RoleStream && !s.is(h.Session) || h.Role != wire.RoleStream && !s.admit(h) {
			return 0, &wire.Refusal{Code: wire.RefusedSession, Reason: "no such session, or the connection already exists"}
		}
		return h.Session, nil
	}
	if h.From == c.opts.Rank {
		return 0, &wire.Refusal{Code: wire.RefusedTaken, Reason: "the connecting rank has the number of the rank that it connects to"}
	}
	if s != nil && s.state() != stateEnded {
		if !s.dialing || s.state() == stateLive {
			return 0, &wire.Refusal{Code: wire.RefusedTaken, Reason: "the rank is already connected"}
		}
		if c.opts.Rank < h.From {
			return 0, &wire.Refusal{Code: wire.RefusedCrossing, Reason: "a connection in the opposite direction is being established"}
		}
	}
	s = newSession(c, h.From, int(h.Channel))
	id := wire.Session(wire.Random())
	s.admitted(id, c.opts.HandshakeTimeout)
	c.sessions[h.From] = s
	return id, nil
}

// Serve takes over a connection that was admitted.
func (d *acceptor) Serve(conn *control.Conn) {
	c := (*Communicator)(d)
	c.mu.RLock()
	s := c.sessions[conn.Peer]
	c.mu.RUnlock()
	if s == nil || !s.is(conn.Session) {
		_ = conn.Close()
		return
	}
	if conn.Role == wire.RoleStream {
		s.c.running.Go(func() { s.arrive(c.life, conn) })
		return
	}
	s.serve(c.life, conn)
}

// admitted sets the id of a session that a peer connects, and limits the time for
// making all its connections.
func (s *session) admitted(id wire.Session, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
	s.expiry = time.AfterFunc(limit, func() {
		if s.state() == stateForming {
			s.end(errors.New("the peer has not established all its connections in time"))
		}
	})
}

func (s *session) is(id wire.Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id == id
}

// admit admits a connection to join the session, each place once.
func (s *session) admit(h wire.Hello) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := int(h.Channel)
	if h.Role == wire.RoleSide {
		if i = len(s.reserved) - 1; !s.sidedLocked() {
			return false
		}
	} else if i == len(s.reserved)-1 {
		return false
	}
	if s.cause != nil || s.id == 0 || s.id != h.Session || i >= len(s.reserved) || s.reserved[i] {
		return false
	}
	s.reserved[i] = true
	return true
}
