package comm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Connect makes a session with a peer that listens at an address. If the peer is
// connected already, by either side, it does nothing.
//
// Errors: *control.WrongRankError, control.ErrSilent, ErrAuth, ErrCover, ErrTaken,
// ErrRefused; ErrClosed; the context's and the network's.
func (c *Communicator) Connect(ctx context.Context, peer wire.Rank, at control.Address) error {
	if peer == c.opts.Rank {
		return fmt.Errorf("connect %s to itself: %w", peer, control.ErrTaken)
	}
	for {
		s, mine, err := c.begin(peer, at)
		switch {
		case err != nil:
			return err
		case mine:
			return c.connect(ctx, s, at)
		}
		// That attempt may fail: then it is our turn.
		_, err = c.await(ctx, peer, func(*session) (bool, error) { return s.state() != stateForming, nil })
		if err != nil || s.state() == stateLive {
			return err
		}
		if err = s.gone(ctx); err != nil {
			return err
		}
	}
}

// takenFirst and takenMost bound the pause after a peer's answer ErrTaken.
const (
	takenFirst = 5 * time.Millisecond
	takenMost  = 200 * time.Millisecond
)

// ConnectAnew connects as Connect does. While the peer answers ErrTaken, since it
// has not noticed the end of the previous session, it retries, at growing
// intervals, until the context ends.
func (c *Communicator) ConnectAnew(ctx context.Context, peer wire.Rank, at control.Address) error {
	for pause := takenFirst; ; pause = min(2*pause, takenMost) {
		err := c.Connect(ctx, peer, at)
		if peer == c.opts.Rank || !errors.Is(err, control.ErrTaken) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Reconnect renews an ended session: it connects to a peer to which we have
// connected before, and otherwise waits for the peer to connect. If the peer is
// connected it does nothing.
//
// Errors: those of ConnectAnew and Await; ErrNotConnected if there never was a
// session.
func (c *Communicator) Reconnect(ctx context.Context, peer wire.Rank) error {
	c.mu.RLock()
	s, ours := c.sessions[peer], false
	var at control.Address
	if s != nil {
		ours, at = s.dialing, s.at
	}
	c.mu.RUnlock()
	switch {
	case s == nil:
		return fmt.Errorf("%s: %w", peer, ErrNotConnected)
	case ours:
		return c.ConnectAnew(ctx, peer, at)
	}
	return c.Await(ctx, peer)
}

// connect forms a session that begin has reserved.
func (c *Communicator) connect(ctx context.Context, s *session, at control.Address) error {
	defer c.running.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	unhook := context.AfterFunc(c.life, stop) //nolint:contextcheck // Close ends pending connections
	defer unhook()
	err := s.dial(ctx, at)
	if err == nil {
		return nil
	}
	s.end(err)
	replaced := c.forget(s)
	switch {
	case c.life.Err() != nil:
		return errClosed()
	case replaced || errors.Is(err, control.ErrCrossing):
		// Both connect at once, and the peer's connection has arrived or will
		// arrive.
		soon, enough := context.WithTimeout(ctx, c.opts.HandshakeTimeout)
		defer enough()
		return c.Await(soon, s.peer)
	}
	return err
}

// begin reserves a session that we connect, and counts it in running; mine is
// false if there is one already, or something of the last one still runs.
func (c *Communicator) begin(peer wire.Rank, at control.Address) (s *session, mine bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, errClosed()
	}
	if s = c.sessions[peer]; s != nil && !s.over() {
		return s, false, nil
	}
	s = newSession(c, peer, c.opts.Channels)
	s.dialing, s.at = true, at
	c.sessions[peer] = s
	// Close waits for sessions that are being connected.
	c.running.Add(1)
	return s, true, nil
}

// forget removes a session that was never live from the list. It reports whether
// another one has taken its place.
func (c *Communicator) forget(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[s.peer] != s {
		return c.sessions[s.peer] != nil
	}
	delete(c.sessions, s.peer)
	return false
}
