package memcoord

import (
	"context"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// lease is a coord.Lease. The server's lock guards all fields but the first three.
type lease struct {
	client *Client
	ttl    time.Duration
	// lost is closed when the client knows that the lease has ended.
	lost chan struct{}

	names map[string]struct{}
	// ended is true if the service no longer knows the lease, told if lost is closed.
	ended, told bool
	// ending is the timer that ends the lease at the service while it is not kept alive, doubt
	// the one that makes the client consider it lost while the client is disconnected.
	ending, doubt *time.Timer
}

// Grant creates a lease; see coord.Service.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.beginLocked(ctx); err != nil {
		return nil, err
	}
	l := &lease{client: c, ttl: ttl, lost: make(chan struct{}), names: make(map[string]struct{})}
	s.leases[l] = struct{}{}
	return l, nil
}

// Lost returns a channel that is closed at the end of the lease; see coord.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Revoke ends the lease; see coord.Lease.
func (l *lease) Revoke(ctx context.Context) error {
	s := l.client.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ended {
		return nil
	}
	if err := l.client.beginLocked(ctx); err != nil {
		return err
	}
	s.endLeaseLocked(l)
	return nil
}

// endLeaseLocked ends a lease at the service, with its values. The client is notified at once
// if it is connected.
//
// +checklocks:s.mu
func (s *Server) endLeaseLocked(l *lease) {
	names := make([]string, 0, len(l.names))
	for name := range l.names {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if it, ok := s.values.Get(item{Entry: coord.Entry{Name: name}}); ok {
			s.removeLocked(it)
		}
	}
	s.forgetLocked(l)
}

// forgetLocked marks a lease as unknown to the service.
//
// +checklocks:s.mu
func (s *Server) forgetLocked(l *lease) {
	l.ended = true
	l.names = nil
	s.tendOneLocked(l)
}

// tellLocked notifies the client that its lease has ended, and no longer keeps the lease
// alive.
//
// +checklocks:s.mu
func (s *Server) tellLocked(l *lease) {
	if !l.told {
		l.told = true
		close(l.lost)
	}
	s.tendOneLocked(l)
}

// tendLocked updates the timers of the leases of a client, or of all clients, after the state
// of connections has changed.
//
// +checklocks:s.mu
func (s *Server) tendLocked(c *Client) {
	for l := range s.leases {
		if c == nil || l.client == c {
			s.tendOneLocked(l)
		}
	}
}

// tendOneLocked does the same for one lease. A lease that has ended is dropped as soon as its
// client knows.
//
// +checklocks:s.mu
func (s *Server) tendOneLocked(l *lease) {
	way := !s.down && !l.client.cut && !l.client.closed
	if l.ended && way && !l.told {
		l.told = true
		close(l.lost)
	}
	if l.ended && l.told {
		delete(s.leases, l)
	}
	s.timerLocked(&l.ending, !l.ended && !s.down && (!way || l.told), s.endLeaseLocked, l)
	s.timerLocked(&l.doubt, !l.told && !way, s.tellLocked, l)
}

// timerLocked starts or stops a timer of a lease. After the lease's time to live the timer
// calls do with the lock held, unless it was stopped meanwhile.
//
// +checklocks:s.mu
func (s *Server) timerLocked(t **time.Timer, run bool, do func(*lease), l *lease) {
	if !run {
		if *t != nil {
			(*t).Stop()
			*t = nil
		}
		return
	}
	if *t != nil {
		return
	}
	var own *time.Timer
	own = time.AfterFunc(l.ttl, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if *t == own {
			*t = nil
			do(l)
		}
	})
	*t = own
}
