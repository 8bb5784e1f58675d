package side

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Causes of the end of a side connection.
var (
	// ErrStalled reports a peer that does not answer within the timeout.
	ErrStalled = errors.New("side: the peer does not respond")
	// ErrProtocol reports a peer that answers a question that was not asked, or
	// exceeds a limit.
	ErrProtocol = errors.New("side: the peer violates the protocol")
)

const (
	// MaxWindows bounds the windows of a peer that are open at once. Further keys
	// use the data connections.
	MaxWindows = 4096
	// maxUnsent is the number of unwritten frames at which a peer is considered
	// not to read.
	maxUnsent = 4 * MaxWindows
)

// Options configures a side connection.
type Options struct {
	// Timeout is the time that the peer has for each answer.
	Timeout time.Duration
	Logger  *zap.Logger
}

// Side is the side connection of one session. All methods may be called from
// any goroutine.
type Side struct {
	conn     *control.Conn
	provider window.Provider
	opts     Options
	// windows holds the peer's windows that are open here. The map never changes
	// once published: it is replaced, under mu.
	windows atomic.Pointer[map[wire.Key]*opened]
	// closing is the number of windows that are withdrawn and still in use.
	closing atomic.Int32
	wake    chan struct{}
	running sync.WaitGroup
	end     sync.Once
	// stop is closed when the end starts, done when nothing runs any more.
	stop chan struct{}
	done chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	exports map[wire.Key]*export
	// +checklocks:mu
	unsent []message
	// +checklocks:mu
	cause error
}

// New starts the side connection, and takes ownership of it and of the provider.
func New(c *control.Conn, p window.Provider, o Options) *Side {
	s := &Side{
		conn: c, provider: p, opts: o, wake: make(chan struct{}, 1), exports: map[wire.Key]*export{},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	s.windows.Store(&map[wire.Key]*opened{})
	s.running.Go(s.read)
	s.running.Go(s.write)
	s.running.Go(func() {
		select {
		case <-p.Done():
			s.fail(p.Err())
		case <-s.stop:
		}
	})
	go s.bury()
	return s
}

// Provider returns the provider that New received.
func (s *Side) Provider() window.Provider { return s.provider }

// Done is closed when the side connection has ended and nothing of it runs.
func (s *Side) Done() <-chan struct{} { return s.done }

// Stopping is closed when the end starts.
func (s *Side) Stopping() <-chan struct{} { return s.stop }

// Err returns the cause of the end; nil while it is alive.
func (s *Side) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errLocked()
}

// +checklocks:s.mu
func (s *Side) errLocked() error {
	if s.cause == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", s.conn.Peer, control.ErrDisconnected, s.cause)
}

// Close ends the side connection, its provider, windows and exports, and waits
// until nothing of it runs.
func (s *Side) Close() {
	s.fail(errors.New("closed on this side"))
	<-s.done
}

// fail starts the end: the first cause is kept.
func (s *Side) fail(cause error) {
	s.end.Do(func() {
		s.mu.Lock()
		s.cause = cause
		s.mu.Unlock()
		close(s.stop)
		// Its error is that of a connection that has ended already.
		_ = s.conn.Close()
	})
}

// bury releases everything that is left once the end has started.
func (s *Side) bury() {
	<-s.stop
	s.provider.Close()
	// Goroutines that wait for operations under a withdrawn key stop waiting now.
	s.running.Wait()
	s.mu.Lock()
	windows, exports := *s.windows.Load(), s.exports
	s.windows.Store(&map[wire.Key]*opened{})
	s.exports, s.unsent = nil, nil
	s.mu.Unlock()
	for key, w := range windows {
		s.closeWindow(key, w)
	}
	for key, e := range exports {
		s.closeExport(key, e)
	}
	close(s.done)
}

// read serves the peer until the end.
func (s *Side) read() {
	r := newReader(s.conn.Conn)
	for {
		f, err := r.next()
		if err == nil {
			err = s.dispatch(f)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// write writes what is queued, until the end.
func (s *Side) write() {
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			return
		}
		for {
			m, ok := s.next()
			if !ok {
				break
			}
			err := s.conn.SetWriteDeadline(time.Now().Add(s.opts.Timeout))
			if err == nil {
				err = m.write(s.conn.Conn)
			}
			if err != nil {
				s.fail(err)
				return
			}
		}
	}
}

func (s *Side) next() (message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || len(s.unsent) == 0 {
		return message{}, false
	}
	m := s.unsent[0]
	s.unsent[0] = message{}
	s.unsent = s.unsent[1:]
	return m, true
}

// sendLocked queues a frame. Its files must stay open until the peer has
// answered, or the side connection has ended.
//
// +checklocks:s.mu
func (s *Side) sendLocked(m message) error {
	if s.cause != nil {
		return s.errLocked()
	}
	if len(s.unsent) >= maxUnsent {
		return fmt.Errorf("%d frames are not yet read by %s: %w", len(s.unsent), s.conn.Peer, ErrProtocol)
	}
	s.unsent = append(s.unsent, m)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// answer queues an answer to the peer.
func (s *Side) answer(frame []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(message{frame: frame})
}

// withTimeout returns the caller's context, bounded by the time that the peer
// has.
func (s *Side) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.opts.Timeout, ErrStalled)
}
