package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// Session is a hetero.Client of this process. It exists as long as one connection does: it
// ends with Close, and when the process exits for any reason. If the daemon exits, all later
// calls are hetero.ErrDisconnected; the session does not reconnect, since its state is gone.
type Session struct {
	client *Client
	id     string
	held   *wire
	// gone is closed when the daemon, or Close, has ended the session.
	gone chan struct{}
	once sync.Once

	mu sync.Mutex
	// closed is set by Close.
	// +checklocks:mu
	closed bool
	// idle holds connections for further calls, ordered by their last use, oldest first.
	// +checklocks:mu
	idle []*wire
	// under holds the connections of calls in progress.
	// +checklocks:mu
	under map[*wire]struct{}
	calls sync.WaitGroup
}

var _ hetero.Client = (*Session)(nil)

// The limits of connections.
const (
	// maxIdle bounds the connections that are kept for further calls.
	maxIdle = 16
	// idleLimit is the time for which they are kept: the daemon closes them later.
	idleLimit = 30 * time.Second
	// endLimit bounds the time that the daemon takes to end a session.
	endLimit = 30 * time.Second
	// lastLimit bounds the time that its last answers take after that.
	lastLimit = 10 * time.Second
)

// OpenSession opens a session with the daemon that listens at a socket: a client of
// heterogeneous objects for this user. The caller must close it.
//
// Errors: ErrNoDaemon; hetero.ErrNotAuthorized for a user without access; hetero.ErrBusy for
// one that has too many sessions.
func OpenSession(ctx context.Context, socket string) (*Session, error) {
	c := New(socket)
	var first adminapi.SessionLine
	w, lines, err := c.lines(ctx, http.MethodPost, adminapi.PathSession, &first)
	if err == nil && first.Session == "" {
		_ = w.conn.Close() // the failure is returned
		err = c.heteroError(errAnswer)
	}
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	s := &Session{client: c, id: first.Session, held: w, gone: make(chan struct{}), under: map[*wire]struct{}{}}
	go s.attend(lines)
	return s, nil
}

// attend waits for the end of the session.
func (s *Session) attend(lines *json.Decoder) {
	defer close(s.gone)
	var line adminapi.SessionLine
	for lines.Decode(&line) == nil && !line.Ended {
	}
	s.dropIdle()
}

// Close ends the session and returns once the daemon has released everything that belonged to
// it. Calls in progress end with hetero.ErrClosed. It may be called more than once.
func (s *Session) Close() error {
	s.once.Do(s.end)
	return nil
}

func (s *Session) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.held.conn.CloseWrite() // an error means that the session has ended
	select {
	case <-s.gone:
	case <-time.After(endLimit):
	}
	_ = s.held.conn.Close() // no more data will arrive
	<-s.gone
	s.mu.Lock()
	for w := range s.under {
		_ = w.conn.SetReadDeadline(time.Now().Add(lastLimit)) // for answers that the daemon has already sent
	}
	s.mu.Unlock()
	s.calls.Wait()
	s.dropIdle()
}

func (s *Session) dropIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropIdleLocked()
}

// +checklocks:s.mu
func (s *Session) dropIdleLocked() {
	for _, w := range s.idle {
		_ = w.conn.Close() // it is not in use
	}
	s.idle = nil
}

// ended returns the reason why no call can be made, or nil.
func (s *Session) ended() error {
	if s.isClosed() {
		return hetero.ErrClosed
	}
	select {
	case <-s.gone:
		return fmt.Errorf("%w: %s", hetero.ErrDisconnected, s.client.socket)
	default:
		return nil
	}
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// take returns a connection for a call. The caller must pass it to put.
func (s *Session) take(ctx context.Context) (*wire, error) {
	if err := s.ended(); err != nil {
		return nil, err
	}
	w := s.takeIdle()
	if w == nil {
		var err error
		if w, err = s.client.dial(ctx); err != nil {
			return nil, s.broken(ctx, s.client.heteroError(err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = w.conn.Close() // nothing was sent on it
		return nil, hetero.ErrClosed
	}
	s.under[w] = struct{}{}
	s.calls.Add(1)
	return w, nil
}

// takeIdle returns the connection that was used last, or nil.
func (s *Session) takeIdle() *wire {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	w := s.idle[n-1]
	if time.Since(w.rested) >= idleLimit {
		s.dropIdleLocked() // the earlier ones have been idle for longer
		return nil
	}
	s.idle = s.idle[:n-1]
	return w
}

// put ends the use of a connection. It is kept for another call if good.
func (s *Session) put(w *wire, good bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, w)
	if good && !s.closed && len(s.idle) < maxIdle {
		w.rested = time.Now()
		s.idle = append(s.idle, w)
	} else {
		_ = w.conn.Close() // no more data will arrive
	}
	s.calls.Done()
}
