package comm

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Origin identifies one session with a peer. A later session with the same rank
// has another number, so that the two can be distinguished.
type Origin struct {
	Rank    wire.Rank
	Session wire.Session
}

// Handler handles the packets of one port. Its methods are called sequentially
// for one session and concurrently for several, and must not block.
type Handler interface {
	// Packet handles a packet. Its bytes are valid until it returns. An error
	// means that the peer breaks the rules, and ends the session.
	Packet(from Origin, p []byte) error
	// Ended reports that a session has ended, and the cause. No packet of it
	// follows, and none of a newer one with the peer precedes it.
	Ended(from Origin, cause error)
}

// Handle sets the handler of a port. Call it before Listen and Connect: a packet
// to a port without a handler is dropped.
//
// Errors: ErrPort for a port that has one; ErrClosed.
func (c *Communicator) Handle(port wire.Port, h Handler) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed()
	case c.handlers[port] != nil:
		return fmt.Errorf("handle port %d: %w", port, ErrPort)
	}
	c.handlers[port] = h
	return nil
}

// Unhandle removes the handler of a port. Calls of it that have started may still
// be running.
func (c *Communicator) Unhandle(port wire.Port) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.handlers, port)
}

// Handler returns the handler of a port, or nil.
func (c *Communicator) Handler(port wire.Port) Handler {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.handlers[port]
}

// SendPacket sends the bytes of all parts as one packet to a port of a peer: see
// control.Link. It waits while the peer does not receive.
func (c *Communicator) SendPacket(ctx context.Context, to wire.Rank, port wire.Port, parts ...[]byte) error {
	s, err := c.session(ctx, to)
	if err != nil {
		return err
	}
	return s.seen(s.link.SendPacket(ctx, port, parts...))
}

// TryPacket is SendPacket if there is room now. Otherwise sent is false, and
// nothing was sent.
func (c *Communicator) TryPacket(to wire.Rank, port wire.Port, parts ...[]byte) (sent bool, err error) {
	c.mu.RLock()
	s, closed := c.sessions[to], c.closed
	c.mu.RUnlock()
	if closed {
		return false, errClosed()
	}
	if ok, failure := s.formed(to); !ok {
		return false, failure
	}
	sent, err = s.link.TryPacket(port, parts...)
	return sent, s.seen(err)
}

// SendPacketIn is SendPacket within one session: if that has ended nothing is
// sent, even if there is a newer one. The caller is about to wait for the peer,
// so the data connections serve the peer at once.
//
// Errors: control.ErrDisconnected; control.ErrTooLong; ErrClosed; the context's,
// and then nothing was sent.
func (c *Communicator) SendPacketIn(ctx context.Context, in Origin, port wire.Port, parts ...[]byte) error {
	s, err := c.within(in)
	if err != nil {
		return err
	}
	s.recall()
	return s.seen(s.link.SendPacket(ctx, port, parts...))
}

// TryPacketIn is SendPacketIn if there is room now. Otherwise sent is false, and
// nothing was sent.
func (c *Communicator) TryPacketIn(in Origin, port wire.Port, parts ...[]byte) (sent bool, err error) {
	s, err := c.within(in)
	if err != nil {
		return false, err
	}
	sent, err = s.link.TryPacket(port, parts...)
	return sent, s.seen(err)
}

// within finds a session by its origin. A session that is ending is returned, as
// long as no other has taken its place.
func (c *Communicator) within(in Origin) (*session, error) {
	c.mu.RLock()
	s, closed := c.sessions[in.Rank], c.closed
	c.mu.RUnlock()
	switch {
	case closed:
		return nil, errClosed()
	case s == nil || s.state() == stateForming || s.link == nil || s.origin() != in:
		return nil, fmt.Errorf("the session with %s has ended: %w", in.Rank, control.ErrDisconnected)
	}
	return s, nil
}

// AwaitRoom waits until TryPacket has room.
func (c *Communicator) AwaitRoom(ctx context.Context, to wire.Rank) error {
	s, err := c.session(ctx, to)
	if err != nil {
		return err
	}
	return s.seen(s.link.AwaitRoom(ctx))
}

// Origin returns the origin of the session with a peer.
//
// Errors: ErrNotConnected; ErrClosed; control.ErrDisconnected for one that has
// ended.
func (c *Communicator) Origin(ctx context.Context, peer wire.Rank) (Origin, error) {
	s, err := c.session(ctx, peer)
	if err != nil {
		return Origin{}, err
	}
	return s.origin(), s.err()
}

// origin returns the identity of the session.
//
// Preconditions: the control connection exists.
func (s *session) origin() Origin { return Origin{s.peer, s.control.Session} }

// packet passes a packet of the peer to its port.
func (s *session) packet(port wire.Port, p []byte) error {
	if s.state() == stateForming {
		// The link receives before the session is live, and answers are possible
		// only in a live one: wait for startLocked to make it live, or to end it.
		s.mu.Lock()
		s.mu.Unlock() //nolint:staticcheck // only the wait is needed
	}
	s.c.mu.RLock()
	h := s.c.handlers[port]
	s.c.mu.RUnlock()
	if h == nil {
		return nil
	}
	return h.Packet(s.origin(), p)
}

// tellEnded notifies the handlers that the session has ended.
func (s *session) tellEnded() {
	s.c.mu.RLock()
	all := slices.Collect(maps.Values(s.c.handlers))
	s.c.mu.RUnlock()
	for _, h := range all {
		h.Ended(s.origin(), s.err())
	}
}
