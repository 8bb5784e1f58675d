package web

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// places bounds the connections of one server. A new one takes the place of the one that has waited
// longest for a request; it waits only while all places have requests in progress.
type places struct {
	net.Listener
	most int

	mu sync.Mutex
	// changed is signalled when a connection leaves, has no request any more, or Close was called.
	changed sync.Cond
	// all are the connections, in the order in which they began to wait.
	// +checklocks:mu
	all []*placed
	// +checklocks:mu
	closed bool
}

// placed is a connection with a place.
type placed struct {
	net.Conn
	places *places
	// busy is set while a request is answered. Guarded by places.mu.
	busy bool
}

func newPlaces(l net.Listener, most int) *places {
	p := &places{Listener: l, most: most}
	p.changed.L = &p.mu
	return p
}

// Accept returns the next connection when it has a place.
func (p *places) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &placed{Conn: c, places: p}
	gone, err := p.admit(one)
	if gone != nil {
		_ = gone.Conn.Close() // it has no request
	}
	if err != nil {
		_ = c.Close() // nothing was received on it
		return nil, err
	}
	return one, nil
}

// admit gives a place to a connection, and returns the one that loses it.
func (p *places) admit(one *placed) (gone *placed, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && len(p.all) >= p.most {
		if at := slices.IndexFunc(p.all, func(c *placed) bool { return !c.busy }); at >= 0 {
			gone = p.all[at]
			p.all = slices.Delete(p.all, at, at+1)
			break
		}
		p.changed.Wait()
	}
	if p.closed {
		return gone, net.ErrClosed
	}
	p.all = append(p.all, one)
	return gone, nil
}

// Close ends Accept. The connections stay.
func (p *places) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.changed.Broadcast()
	return p.Listener.Close()
}

// set records whether a request of a connection is in progress. One that begins to wait gives way
// after all others. One that has left changes nothing.
func (p *places) set(one *placed, busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.all, one)
	if at < 0 {
		return
	}
	one.busy = busy
	p.all = append(slices.Delete(p.all, at, at+1), one)
	p.changed.Signal()
}

// Close closes the connection and frees its place.
func (c *placed) Close() error {
	p := c.places
	p.mu.Lock()
	p.all = slices.DeleteFunc(p.all, func(o *placed) bool { return o == c })
	p.mu.Unlock()
	p.changed.Signal()
	return c.Conn.Close()
}

// placeKey is the key of a request's connection in its context.
type placeKey struct{}

// watch has a server report the requests of the connections. A request is in progress from the call
// of the handler to the end of the answer: a client that sends it slowly gives way too.
func (p *places) watch(s *http.Server) {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, placeKey{}, c) }
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if one, ok := c.(*placed); ok && state == http.StateIdle {
			p.set(one, false)
		}
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if one, ok := r.Context().Value(placeKey{}).(*placed); ok {
			p.set(one, true)
		}
		next.ServeHTTP(w, r)
	})
}
