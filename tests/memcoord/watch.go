package memcoord

import (
	"context"
	"strings"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// watch is a coord.Watch. The server's lock guards all fields after client.
type watch struct {
	client *Client
	prefix string
	// wake has a capacity of one; it signals that there is something to read.
	wake  chan struct{}
	queue []coord.Event
	// ended is the reason why nothing follows the queue.
	ended error
}

// pushLocked appends a change to the queue of a watch.
//
// +checklocks:s.mu
func (s *Server) pushLocked(w *watch, ev coord.Event) {
	if len(w.queue) >= 2*s.history {
		w.queue = nil
		s.endWatchLocked(w, coord.ErrCompacted)
		return
	}
	w.queue = append(w.queue, ev)
	s.stats.Events++
	s.stats.EventBytes += uint64(len(ev.Name) + len(ev.Value))
	w.wakeUp()
}

func (w *watch) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// endWatchLocked ends a watch after its queue has been read.
//
// +checklocks:s.mu
func (s *Server) endWatchLocked(w *watch, why error) {
	if w.ended != nil {
		return
	}
	w.ended = why
	set := s.watches[w.prefix]
	delete(set, w)
	if len(set) == 0 {
		delete(s.watches, w.prefix)
	}
	delete(w.client.watches, w)
	w.wakeUp()
}

// breakWatchesLocked ends the watches of a client, or of all clients.
//
// +checklocks:s.mu
func (s *Server) breakWatchesLocked(c *Client, why error) {
	for _, set := range s.watches {
		for w := range set {
			if c == nil || w.client == c {
				s.endWatchLocked(w, why)
			}
		}
	}
}

// Next waits for changes; see coord.Watch.
func (w *watch) Next(ctx context.Context) ([]coord.Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if events, err := w.take(); events != nil || err != nil {
			return events, err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

func (w *watch) take() ([]coord.Event, error) {
	s := w.client.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(w.queue) > 0 {
		events := w.queue
		w.queue = nil
		return events, nil
	}
	return nil, w.ended
}

// Close ends the watch; see coord.Watch.
func (w *watch) Close() {
	s := w.client.server
	s.mu.Lock()
	defer s.mu.Unlock()
	w.queue = nil
	s.endWatchLocked(w, coord.ErrClosed)
}

// Watch starts a watch; see coord.Service.
func (c *Client) Watch(ctx context.Context, prefix string, after coord.Revision) (coord.Watch, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.beginLocked(ctx); err != nil {
		return nil, err
	}
	if after < s.forgotten || after > s.revision {
		return nil, coord.ErrCompacted
	}
	w := &watch{client: c, prefix: prefix, wake: make(chan struct{}, 1)}
	if s.watches[prefix] == nil {
		s.watches[prefix] = make(map[*watch]struct{})
	}
	s.watches[prefix][w] = struct{}{}
	c.watches[w] = struct{}{}
	for _, ev := range s.log {
		if ev.Revision > after && strings.HasPrefix(ev.Name, prefix) {
			s.pushLocked(w, ev)
		}
	}
	return w, nil
}
