package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// shares are the requests of bind and export that are under way, and the
// connections that hold exports.
type shares struct {
	mu sync.Mutex
	// ended says that no more are taken.
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	under map[*shareWork]struct{}
	work  sync.WaitGroup
}

// shareWork is one request under way.
type shareWork struct {
	cancel context.CancelFunc
	// conn is the connection where descriptors travel, else nil.
	conn *conn
}

// begin counts a request in. Its context ends with the server.
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

// end counts it out.
func (s *shares) end(w *shareWork) {
	w.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, w)
	s.work.Done()
}

// stop interrupts what is under way and takes no more.
func (s *shares) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for w := range s.under {
		w.cancel()
		if w.conn != nil {
			_ = w.conn.Close() // whoever serves it sees that
		}
	}
}

// EndShares ends the sessions, and the exports that connections hold; what is
// asked of shared memory and of keys from now on is refused. It returns when
// nothing of it is under way any more, or with an error when the context ends
// before. Afterwards neither the Sharer nor the Keyed is called again.
func (s *Server) EndShares(ctx context.Context) error {
	err := s.sessions.stop(ctx)
	s.shares.stop()
	if werr := awaitGroup(ctx, &s.shares.work); werr != nil {
		err = errors.Join(err, fmt.Errorf("wait for bind and export under way: %w", werr))
	}
	return err
}
