package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/side"
	"github.com/hmcfs/hmcfs/transport/tcp"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// dial makes all connections of a session that this rank connects.
func (s *session) dial(ctx context.Context, at control.Address) error {
	o := s.c.opts.control(&s.c.epochs)
	first, err := s.dialOne(ctx, at, o, wire.Hello{Role: wire.RoleControl, Channel: uint8(s.c.opts.Channels)})
	if err != nil {
		return err
	}
	if err := s.propose(ctx, first); err != nil {
		return err
	}
	o.Chunk = first.Chunk
	for i := range s.c.opts.Channels {
		if _, err := s.dialOne(ctx, at, o, wire.Hello{Role: wire.RoleData, Session: first.Session, Channel: uint8(i)}); err != nil {
			return err
		}
	}
	if s.sided() {
		c, err := s.dialOne(ctx, at, o, wire.Hello{Role: wire.RoleSide, Session: first.Session})
		if err != nil {
			return err
		}
		if err := s.handshake(ctx, c); err != nil {
			return err
		}
	}
	return s.begin()
}

// dialOne makes one connection, and passes ownership of it to the session.
func (s *session) dialOne(ctx context.Context, at control.Address, o control.Options, want wire.Hello) (*control.Conn, error) {
	want.To = s.peer
	c, err := control.Dial(ctx, at, o, want)
	if err != nil {
		return nil, err
	}
	s.c.dials.Add(1)
	return c, s.join(c)
}

// sided reports whether the agreed transport has a side connection.
func (s *session) sided() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sidedLocked()
}

// +checklocks:s.mu
func (s *session) sidedLocked() bool { return s.way != nil && s.way.route.driver != nil }

// join adds a connection, which the session then owns.
func (s *session) join(c *control.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := len(s.reserved)
	switch c.Role {
	case wire.RoleControl:
		place = 0
	case wire.RoleData:
		place = 1 + int(c.Channel)
	default:
	}
	if s.cause != nil || s.conns == nil || s.conns[place] != nil {
		return errors.Join(s.errLocked(), c.Close())
	}
	s.conns[place] = c
	return nil
}

// serve adds a connection that the peer has made, and performs our part of its
// setup.
func (s *session) serve(ctx context.Context, c *control.Conn) {
	if s.join(c) != nil {
		return // the session has ended, and has closed the connection
	}
	s.c.running.Go(func() {
		var err error
		switch c.Role {
		case wire.RoleControl:
			if err = s.follow(ctx); err == nil {
				err = s.choose(ctx, c)
			}
		case wire.RoleSide:
			err = s.handshake(ctx, c)
		default:
		}
		if err == nil {
			err = s.begin()
		}
		if errors.Is(err, ErrNoTransport) {
			// The connecting side receives the error; here no caller would see
			// it.
			s.c.log.Warn("no session with peer: no common transport", zap.Uint32("rank", uint32(s.peer)), zap.Error(err))
		}
		if err != nil {
			s.end(err)
		}
	})
}

// follow waits until nothing runs of the sessions that the peer had before.
func (s *session) follow(ctx context.Context) error {
	if s.before == nil {
		return nil
	}
	select {
	case <-s.before:
		return nil
	case <-ctx.Done():
		return errClosed()
	}
}

// handshake introduces the transport's two sides to each other over the side
// connection.
func (s *session) handshake(ctx context.Context, c *control.Conn) error {
	s.mu.Lock()
	if s.cause != nil {
		defer s.mu.Unlock()
		return s.errLocked()
	}
	driver, first := s.way.route.driver, s.conns[0]
	s.mu.Unlock()
	starter, err := driver.Open(s.setting(first))
	if err != nil {
		return err
	}
	provider, err := side.Handshake(ctx, c.Conn, starter, s.c.opts.HandshakeTimeout)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		provider.Close()
		return s.err()
	}
	s.provider = provider
	s.mu.Unlock()
	return nil
}

// begin makes the session live, once everything that it needs is present.
func (s *session) begin() error {
	began, err := s.tryBegin()
	if err != nil {
		s.end(err)
	}
	if !began {
		return err
	}
	s.c.log.Info("peer connected", zap.Uint32("rank", uint32(s.peer)), zap.Stringer("transport", s.took.route.id),
		zap.Strings("because", s.took.because), zap.Int("channels", len(s.channels)),
		zap.Uint32("chunk", s.control.Chunk), zap.String("network", s.control.LocalAddr().Network()),
		zap.Stringer("protection", s.control.Cover))
	s.c.announce()
	return nil
}

// tryBegin is begin without logging and announcement.
func (s *session) tryBegin() (began bool, err error) {
	// If another session has replaced this one, nothing would find it.
	s.c.mu.RLock()
	defer s.c.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cause != nil:
		return false, s.errLocked()
	case s.conns == nil || !s.agreed || s.sidedLocked() != (s.provider != nil) || slices.Contains(s.conns[:len(s.reserved)], nil):
		return false, nil
	case s.c.sessions[s.peer] != s:
		return false, fmt.Errorf("%s: %w", s.peer, control.ErrCrossing)
	}
	err = s.startLocked()
	return err == nil, err
}

// startLocked makes the link, the channels and the side from the connections.
//
// +checklocks:s.mu
func (s *session) startLocked() error {
	if s.expiry != nil {
		s.expiry.Stop()
	}
	conns, provider := s.conns, s.provider
	s.conns, s.provider = nil, nil
	s.control, s.took = conns[0], s.way
	last := conns[len(conns)-1]
	if provider != nil {
		// It owns both, even if the rest fails.
		s.side = side.New(last, provider, side.Options{Timeout: s.c.opts.Timeout, Logger: s.c.log})
		s.tags, _ = provider.(window.Tags)
	}
	link, err := control.NewLink(conns[0], s.packet)
	if err != nil {
		return errors.Join(err, closeConns(conns[1:len(conns)-1]))
	}
	s.link = link
	for i, c := range conns[1 : len(conns)-1] {
		c.Chunk = s.control.Chunk
		ch, err := tcp.New(c, s.c.opts.channel(s.keys, &s.c.pipes))
		if err != nil {
			return errors.Join(err, closeConns(conns[i+2:len(conns)-1]))
		}
		s.channels = append(s.channels, ch)
	}
	s.now.Store(int32(stateLive))
	s.c.running.Go(func() { <-link.Stopping(); s.end(link.Err()) })
	for _, ch := range s.channels {
		// A link that was ended with a cause makes the peer close every
		// connection, which may be seen here first.
		s.c.running.Go(func() { <-ch.Done(); s.end(cmp.Or(link.Err(), ch.Err())) })
	}
	if s.side != nil {
		s.c.running.Go(func() { <-s.side.Stopping(); s.end(cmp.Or(link.Err(), s.side.Err())) })
	}
	return nil
}
