package memcoord

import (
	"context"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// lease is a coord.Lease. All but the first three belongs to the server's
// lock.
type lease struct {
	client *Client
	ttl    time.Duration
	// lost is closed when the client knows that the lease has ended.
	lost chan struct{}

	names map[string]struct{}
	// ended: the service does not know it any more. told: lost is closed.
	ended, told bool
	// ending runs at the service while nobody keeps the lease, doubt at the
	// client while it can't be told.
	ending, doubt *time.Timer
}

// Grant begins a lease; see coord.Service.
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

// Lost is closed with the end of the lease; see coord.Lease.
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

// endLeaseLocked ends a lease at the service, with its values. The client
// learns of it at once if there is a way.
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

// forgetLocked makes a lease one that the service does not know.
//
// +checklocks:s.mu
func (s *Server) forgetLocked(l *lease) {
	l.ended = true
	l.names = nil
	s.tendOneLocked(l)
}

// tellLocked lets the client know that its lease is no more, and keeps it no
// longer.
//
// +checklocks:s.mu
func (s *Server) tellLocked(l *lease) {
	if !l.told {
		l.told = true
		close(l.lost)
	}
	s.tendOneLocked(l)
}

// tendLocked sees to the timers of the leases of a client, or of all, after
// something has changed with the ways.
//
// +checklocks:s.mu
func (s *Server) tendLocked(c *Client) {
	for l := range s.leases {
		if c == nil || l.client == c {
			s.tendOneLocked(l)
		}
	}
}

// tendOneLocked is tendLocked for one lease. One that has ended is dropped as
// soon as its client knows.
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

// timerLocked makes a timer of a lease run, or not. What it does after the
// lease's time, it does with the lock held, and not if it was stopped
// meanwhile.
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
