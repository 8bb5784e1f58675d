package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// shares are the requests in progress that belong to no session's frames.
type shares struct {
	mu sync.Mutex
	// ended is set once no more requests are accepted.
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	under map[*shareWork]struct{}
	work  sync.WaitGroup
}

// shareWork is one request in progress.
type shareWork struct {
	cancel context.CancelFunc
	// conn is the connection of a list or of a stream, which its client may leave unread; else nil.
	conn *conn
}

// begin registers a request. Its context ends with the server.
func (s *shares) begin(ctx context.Context, c *conn) (context.Context, *shareWork, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &shareWork{cancel: cancel, conn: c}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		cancel()
		return nil, nil, errEnding
	}
	if s.under == nil {
		s.under = map[*shareWork]struct{}{}
	}
	s.under[w] = struct{}{}
	s.work.Add(1)
	return ctx, w, nil
}

func (s *shares) end(w *shareWork) {
	w.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, w)
	s.work.Done()
}

// stop interrupts the requests in progress and refuses new ones.
func (s *shares) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for w := range s.under {
		w.cancel()
		if w.conn != nil {
			_ = w.conn.Close() // the goroutine that serves it notices
		}
	}
}

// EndShares ends the sessions, and the exports that connections hold; later requests about
// shared memory and keys are refused. It returns when none is in progress any more, or with
// an error when the context ends first. Afterwards neither the Sharer nor the Keyed is
// called again.
func (s *Server) EndShares(ctx context.Context) error {
	err := s.sessions.stop(ctx)
	s.shares.stop()
	if werr := awaitGroup(ctx, &s.shares.work); werr != nil {
		err = errors.Join(err, fmt.Errorf("wait for bind and export under way: %w", werr))
	}
	return err
}
