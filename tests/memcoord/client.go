package memcoord

import (
	"context"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// Client is the connection of one node to the service. The server's lock guards all fields
// below server.
type Client struct {
	server  *Server
	cut     bool
	closed  bool
	watches map[*watch]struct{}
}

var _ coord.Service = (*Client)(nil)

// SetCut cuts or restores the connection between this client and the service.
func (c *Client) SetCut(cut bool) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.cut = cut
	if cut {
		s.breakWatchesLocked(c, coord.ErrUnavailable)
	}
	s.tendLocked(c)
}

// Kill simulates the death of the client's process after the time to live of its leases has
// passed: they end immediately, and calls of the client fail.
func (c *Client) Kill() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.closeLocked()
	for l := range s.leases {
		if l.client == c && !l.ended {
			s.endLeaseLocked(l)
		}
		if l.client == c {
			s.tellLocked(l)
		}
	}
}

// Close ends watches and stops keeping leases alive; see coord.Service.
func (c *Client) Close() error {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		return coord.ErrClosed
	}
	c.closeLocked()
	return nil
}

// closeLocked does everything that ends the client, except for its leases.
//
// +checklocks:c.server.mu
func (c *Client) closeLocked() {
	c.closed = true
	for w := range c.watches {
		c.server.endWatchLocked(w, coord.ErrClosed)
	}
	c.server.tendLocked(c)
}

// beginLocked starts a call.
//
// +checklocks:c.server.mu
func (c *Client) beginLocked(ctx context.Context) error {
	c.server.stats.Calls++
	switch {
	case c.closed:
		return coord.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case c.cut || c.server.down:
		return coord.ErrUnavailable
	case c.server.deny:
		return coord.ErrDenied
	}
	return nil
}

// leaseOf returns the service's lease that a caller refers to; false if it has ended or
// belongs to another service.
func (c *Client) leaseOf(l coord.Lease) (*lease, bool) {
	if l == nil {
		return nil, true
	}
	own, ok := l.(*lease)
	if !ok || own.client.server != c.server || own.ended {
		return nil, false
	}
	return own, true
}

// Create creates entries; see coord.Service.
func (c *Client) Create(ctx context.Context, entries []coord.Entry, l coord.Lease) ([]coord.Result, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.beginLocked(ctx); err != nil {
		return nil, err
	}
	own, alive := c.leaseOf(l)
	results := make([]coord.Result, len(entries))
	for i, e := range entries {
		if !alive {
			results[i].Err = coord.ErrLease
			continue
		}
		if it, ok := s.values.Get(item{Entry: e}); ok {
			results[i] = coord.Result{Found: it.Entry, Err: coord.ErrExist}
			continue
		}
		results[i].Revision = s.putLocked(e.Name, slices.Clone(e.Value), own)
	}
	return results, nil
}

// Replace replaces entries; see coord.Service.
func (c *Client) Replace(ctx context.Context, entries []coord.Entry, l coord.Lease) ([]coord.Result, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.beginLocked(ctx); err != nil {
		return nil, err
	}
	own, alive := c.leaseOf(l)
	results := make([]coord.Result, len(entries))
	for i, e := range entries {
		it, ok := s.values.Get(item{Entry: e})
		switch {
		case !alive:
			results[i].Err = coord.ErrLease
		case !ok || it.Revision != e.Revision:
			results[i].Err = coord.ErrChanged
		default:
			results[i].Revision = s.putLocked(e.Name, slices.Clone(e.Value), own)
		}
	}
	return results, nil
}

// Delete removes entries; see coord.Service.
func (c *Client) Delete(ctx context.Context, entries []coord.Entry) ([]coord.Result, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.beginLocked(ctx); err != nil {
		return nil, err
	}
	results := make([]coord.Result, len(entries))
	for i, e := range entries {
		it, ok := s.values.Get(item{Entry: e})
		switch {
		case !ok:
			results[i].Revision = s.revision
		case e.Revision != 0 && e.Revision != it.Revision:
			results[i].Err = coord.ErrChanged
		default:
			results[i].Revision = s.removeLocked(it)
		}
	}
	return results, nil
}

// Get reads an entry; see coord.Service. The value must not be modified.
func (c *Client) Get(ctx context.Context, name string) (coord.Entry, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.beginLocked(ctx); err != nil {
		return coord.Entry{}, err
	}
	it, ok := s.values.Get(item{Entry: coord.Entry{Name: name}})
	if !ok {
		return coord.Entry{}, coord.ErrNotFound
	}
	return it.Entry, nil
}

// List reads entries in order; see coord.Service.
func (c *Client) List(ctx context.Context, prefix, after string, limit int) ([]coord.Entry, coord.Revision, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.beginLocked(ctx); err != nil {
		return nil, 0, err
	}
	var found []coord.Entry
	from := max(prefix, after)
	s.values.Ascend(item{Entry: coord.Entry{Name: from}}, func(it item) bool {
		if !strings.HasPrefix(it.Name, prefix) || len(found) >= limit {
			return false
		}
		if it.Name != after || after == "" {
			found = append(found, it.Entry)
		}
		return true
	})
	return found, s.revision, nil
}
