package comm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/side"
	"github.com/hmcfs/hmcfs/transport/tcp"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// state is the state of a session: forming, then live, then ended; or forming,
// then ended.
type state int32

const (
	stateForming state = iota
	stateLive
	stateEnded
)

// session holds the state of two ranks from connect to disconnect.
type session struct {
	c    *Communicator
	peer wire.Rank
	keys *region.Keys
	// dialing is set if we connect; it is guarded by the communicator's mu.
	dialing bool
	// at is the address that we have connected to; streams use it too.
	at   control.Address
	now  atomic.Int32
	turn atomic.Uint32
	// before is closed when nothing of the sessions that the peer had before runs; nil if
	// nothing did when this one was made.
	before <-chan struct{}
	// done is closed when the session has ended and nothing runs of it, or of the sessions
	// before.
	done   chan struct{}
	expiry *time.Timer

	// The following fields are set before the session is live, and do not change.
	// side is nil if all bytes use the channels, and tags if they use the link.
	took     *chosen
	control  *control.Conn
	link     *control.Link
	channels []*tcp.Channel
	side     *side.Side
	tags     window.Tags

	mu sync.Mutex
	// id is sent by the data connections; 0 before it is known.
	// +checklocks:mu
	id wire.Session
	// conns holds the connections of the session while it forms: the control
	// connection, then the data connections, then the side connection, if the
	// transport has one.
	// +checklocks:mu
	conns []*control.Conn
	// reserved marks the admitted connections, without the control connection.
	// +checklocks:mu
	reserved []bool
	// way is the transport, once it is chosen, and agreed is set when the
	// negotiation on the control connection is over.
	// +checklocks:mu
	way *chosen
	// +checklocks:mu
	agreed bool
	// provider is that of the transport, while the session forms.
	// +checklocks:mu
	provider window.Provider
	// +checklocks:mu
	cause error
	// streams holds the connections for Stream that the peer has made and that
	// are not yet taken, the oldest first. arrived is closed and replaced when
	// one arrives, and closed at the end.
	// +checklocks:mu
	streams []arrival
	// unnamed holds those that have not sent their name, the oldest first.
	// +checklocks:mu
	unnamed []net.Conn
	// +checklocks:mu
	arrived chan struct{}
	// eras holds the pending requests, divided by fences: the last era is open,
	// those before it are waited for.
	// +checklocks:mu
	eras []*era
}

// era is a group of requests between two fences.
type era struct {
	pending int
	// done is closed when they have completed, and all before them.
	done chan struct{}
}

func newEra() *era { return &era{done: make(chan struct{})} }

// newSession makes a session. It must be ended by end: the communicator's running
// counts it until then.
//
// Preconditions: the communicator is not closed.
//
// +checklocks:c.mu
func newSession(c *Communicator, peer wire.Rank, channels int) *session {
	c.running.Add(1)
	s := &session{
		c: c, peer: peer, keys: region.NewKeys(), done: make(chan struct{}), arrived: make(chan struct{}),
		conns: make([]*control.Conn, 1+channels+1), reserved: make([]bool, channels+1), eras: []*era{newEra()},
	}
	if last := c.sessions[peer]; last != nil && last.state() == stateEnded {
		s.before = last.done
	}
	return s
}

func (s *session) state() state { return state(s.now.Load()) }

func closeConns(conns []*control.Conn) error {
	var errs []error
	for _, c := range conns {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// end starts the end of the session: the first cause is kept.
func (s *session) end(cause error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause = cause
	formed := s.conns == nil
	s.now.Store(int32(stateEnded))
	if s.expiry != nil {
		s.expiry.Stop()
	}
	left, provider := s.conns, s.provider
	s.conns, s.provider = nil, nil
	streams, unnamed := s.streams, s.unnamed
	s.streams, s.unnamed = nil, nil
	close(s.arrived)
	s.mu.Unlock()
	for _, a := range streams {
		_ = a.conn.Close()
	}
	for _, c := range unnamed {
		_ = c.Close()
	}
	// Their errors are those of connections that have failed anyway.
	_ = closeConns(left)
	if provider != nil {
		provider.Close()
	}
	if formed {
		s.c.log.Info("peer disconnected", zap.Uint32("rank", uint32(s.peer)), zap.Error(cause))
	}
	s.c.announce()
	go func() {
		defer s.c.running.Done()
		if s.link != nil {
			// Handlers are notified of the end as soon as no packet can arrive,
			// not when the last byte has been sent.
			if errors.Is(cause, control.ErrDisconnected) {
				// The end of another connection was seen first. Packets that the
				// peer has sent before are still in transit.
				s.link.Drain()
			}
			s.link.Stop()
			<-s.link.Received()
			s.tellEnded()
			s.link.Close()
		}
		for _, ch := range s.channels {
			ch.Close()
		}
		if s.side != nil {
			s.side.Close()
		}
		// The keys are closed last: a peer whose request came too late must learn
		// that the session has ended, and not that its key is wrong.
		s.keys.Close()
		if s.before != nil {
			<-s.before
		}
		close(s.done)
	}()
}

// over reports whether the session has ended and is done.
func (s *session) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// gone waits until the session, which has ended, is done. Until then bytes that it has
// received may still reach their places, where they must not follow those of the next one.
func (s *session) gone(ctx context.Context) error {
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of the previous session with %s: %w", s.peer, ctx.Err())
	}
}

// seen ends the session if an error means that it is over, so that a caller that
// has seen the error finds the session ended. It then returns the cause of the
// end, of which the error may be a mere consequence.
func (s *session) seen(err error) error {
	if !errors.Is(err, control.ErrDisconnected) {
		return err
	}
	s.end(err)
	return s.err()
}

// err returns the cause of the session's end; nil while it is alive.
func (s *session) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errLocked()
}

// +checklocks:s.mu
func (s *session) errLocked() error {
	if s.cause == nil || errors.Is(s.cause, control.ErrDisconnected) {
		return s.cause
	}
	return control.Disconnected(s.peer, s.cause)
}

// enter registers a request that starts.
func (s *session) enter() (*era, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.errLocked(); err != nil {
		return nil, err
	}
	e := s.eras[len(s.eras)-1]
	e.pending++
	return e, nil
}

// leave records that a request has completed.
func (s *session) leave(e *era) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.pending--
	s.sweepLocked()
}

// sweepLocked ends the completed eras, the oldest first.
//
// +checklocks:s.mu
func (s *session) sweepLocked() {
	for len(s.eras) > 1 && s.eras[0].pending == 0 {
		close(s.eras[0].done)
		s.eras = s.eras[1:]
	}
}

// fence waits until all requests that were started are complete.
func (s *session) fence(ctx context.Context) error {
	s.mu.Lock()
	if err := s.errLocked(); err != nil {
		s.mu.Unlock()
		return err
	}
	if len(s.eras) == 1 && s.eras[0].pending == 0 {
		s.mu.Unlock()
		return nil
	}
	last := s.eras[len(s.eras)-1]
	if last.pending > 0 {
		s.eras = append(s.eras, newEra())
	} else {
		// No request was started since the last fence, which is still waiting.
		last = s.eras[len(s.eras)-2]
	}
	s.mu.Unlock()
	select {
	case <-last.done:
		return s.err()
	case <-ctx.Done():
		return fmt.Errorf("wait for pending requests to %s: %w", s.peer, ctx.Err())
	}
}

// post passes a transfer to as many channels as its size warrants.
func (s *session) post(t *tcp.Transfer, n devices.Size) {
	shares := min(len(s.channels), max(1, int(min(n/stripe, wire.MaxChannels))))
	first := 0
	if len(s.channels) > 1 {
		first = int(s.turn.Add(1))
	}
	for i := range shares {
		s.channels[(first+i)%len(s.channels)].Post(t)
	}
}

// pick returns the next channel in turn.
func (s *session) pick() *tcp.Channel {
	return s.channels[int(s.turn.Add(1))%len(s.channels)]
}

// recall makes the data connections serve the peer while we wait for it.
func (s *session) recall() {
	for _, ch := range s.channels {
		ch.Recall()
	}
}
