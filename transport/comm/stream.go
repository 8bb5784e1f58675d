package comm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// maxStreams bounds the connections of a peer that wait to be taken, and
	// those that have not sent their name; with one more, the oldest is closed.
	maxStreams = 64
	// nameSize is the size, in bytes, of a stream's name, which is sent first.
	nameSize = 8
)

// arrival is a stream that waits to be taken.
type arrival struct {
	name uint64
	conn net.Conn
}

// Stream makes a connection with a peer in addition to those of the session, for
// the caller: both ranks call it, with the same name, which is used once. The
// rank that has connected the session connects; the connection is encrypted if
// the session is. It belongs to the caller, and does not end with the session.
//
// Errors: control.ErrDisconnected if the session has ended; those of Connect; the
// context's.
func (c *Communicator) Stream(ctx context.Context, in Origin, name uint64) (net.Conn, error) {
	s, err := c.within(in)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	ours := s.dialing
	c.mu.RUnlock()
	var conn net.Conn
	if ours {
		conn, err = s.openStream(ctx, name)
	} else {
		conn, err = s.takeStream(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("stream with %s: %w", s.peer, err)
	}
	return conn, nil
}

// openStream makes the connection.
func (s *session) openStream(ctx context.Context, name uint64) (net.Conn, error) {
	o := s.c.opts.control(&s.c.epochs)
	o.Chunk = s.control.Chunk
	c, err := control.Dial(ctx, s.at, o, wire.Hello{To: s.peer, Role: wire.RoleStream, Session: s.control.Session})
	if err != nil {
		return nil, errors.Join(s.err(), err)
	}
	s.c.dials.Add(1)
	err = s.timely(ctx, c, func() error {
		_, werr := c.Write(binary.LittleEndian.AppendUint64(nil, name))
		return werr
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c.Conn, nil
}

// arrive keeps a stream that the peer has made until it is taken.
func (s *session) arrive(ctx context.Context, c *control.Conn) {
	var name [nameSize]byte
	if !s.expect(c) {
		_ = c.Close() // it is not in use yet
		return
	}
	defer s.named(c)
	err := s.timely(ctx, c, func() error {
		_, rerr := io.ReadFull(c, name[:])
		return rerr
	})
	if err != nil || !s.keep(arrival{binary.LittleEndian.Uint64(name[:]), c.Conn}) {
		_ = c.Close() // it is not in use yet
	}
}

// expect registers a stream that has yet to send its name, and makes room for it.
func (s *session) expect(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return false
	}
	if len(s.unnamed) == maxStreams {
		_ = s.unnamed[0].Close()
		s.unnamed = slices.Delete(s.unnamed, 0, 1)
	}
	s.unnamed = append(s.unnamed, c)
	return true
}

// named undoes expect.
func (s *session) named(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unnamed = slices.DeleteFunc(s.unnamed, func(one net.Conn) bool { return one == c })
}

func (s *session) keep(a arrival) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return false
	}
	if len(s.streams) == maxStreams {
		_ = s.streams[0].conn.Close()
		s.streams = slices.Delete(s.streams, 0, 1)
	}
	s.streams = append(s.streams, a)
	close(s.arrived)
	s.arrived = make(chan struct{})
	return true
}

// takeStream waits until the peer has connected.
func (s *session) takeStream(ctx context.Context, name uint64) (net.Conn, error) {
	for {
		s.mu.Lock()
		if s.cause != nil {
			defer s.mu.Unlock()
			return nil, s.errLocked()
		}
		if i := slices.IndexFunc(s.streams, func(a arrival) bool { return a.name == name }); i >= 0 {
			defer s.mu.Unlock()
			conn := s.streams[i].conn
			s.streams = slices.Delete(s.streams, i, i+1)
			return conn, nil
		}
		arrived := s.arrived
		s.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the peer's connection: %w", ctx.Err())
		}
	}
}

// Map maps the memory of a key that a peer on this host has shared, until the
// mapping is closed, even if the key or the session has ended by then.
//
// Errors: devices.ErrUnsupported if only puts and gets can access it;
// region.ErrRights; control.ErrDisconnected.
func (c *Communicator) Map(ctx context.Context, peer wire.Rank, d wire.Descriptor) (window.Mapping, error) {
	s, err := c.session(ctx, peer)
	if err != nil {
		return nil, err
	}
	unsupported := fmt.Errorf("memory of %s can't be mapped: %w", peer, devices.ErrUnsupported)
	if s.side == nil {
		return nil, errors.Join(s.err(), unsupported)
	}
	use, status, found := s.side.Use(d.Key, d.Rights, 0, devices.Size(d.Size))
	switch {
	case !found:
		return nil, errors.Join(s.err(), unsupported)
	case status != wire.StatusOK:
		return nil, fmt.Errorf("map memory of %s: %w", peer, region.StatusError(status))
	}
	defer use.Leave()
	return use.Map()
}

// Reaches reports whether memory that a peer on this host shares can be mapped,
// as far as the session's transport is concerned.
func (c *Communicator) Reaches(ctx context.Context, peer wire.Rank) (bool, error) {
	s, err := c.session(ctx, peer)
	if err != nil {
		return false, err
	}
	return s.took.route.id == wire.TransportSHM, s.err()
}
